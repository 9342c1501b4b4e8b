//! Ray: rank 0 runs `ray start --head --node-ip-address="$MASTER_ADDR" --port="$MASTER_PORT"`, the other
//! ranks `ray start --address="$RAY_ADDRESS"`.
//!
//! `ray.init()` reads RAY_ADDRESS (python/ray/_private/worker.py); `ray start` reads no variable, and takes
//! the same text as an argument (python/ray/scripts/scripts.py). An IPv6 address is in brackets
//! (src/ray/util/network_util.cc, `ParseAddress`).
//!
//! With RAY_AUTH_MODE=token every process of Ray proves that it knows the same token, from RAY_AUTH_TOKEN,
//! from the file that RAY_AUTH_TOKEN_PATH names, or from ~/.ray/auth_token
//! (src/ray/rpc/authentication/authentication_token_loader.cc). Without the variable the head alone turns
//! this on, where that file exists, and refuses all others
//! (python/ray/_private/authentication/authentication_token_setup.py). A job with a secret has a token that
//! only its nodes know.

use super::{Advice, Launcher};
use crate::model::Secret;

pub(super) const LAUNCHER: Launcher = Launcher {
    name: "ray",
    about: "Ray, with RAY_ADDRESS",
    owns: &[("RAY_ADDRESS", |input| Ok(input.master()))],
    advises: &[
        Advice {
            name: "RAY_AUTH_MODE",
            rival: None,
            value: |input| input.facts.secret.map(|_| "token".to_owned()),
        },
        Advice {
            name: "RAY_AUTH_TOKEN",
            rival: Some("RAY_AUTH_TOKEN_PATH"),
            value: |input| {
                let facts = input.facts;
                let token =
                    |secret: &Secret| secret.for_launcher("mingle 2 ray", facts.job, facts.formed.digest);
                facts.secret.map(token)
            },
        },
    ],
    ..Launcher::PLAIN
};
