//! Namespaces that the reference plugins of the Container Network Interface make, as for pods.

use std::path::Path;

use super::{expect, form_with};
use crate::lab::{Lab, Options, skip};

const PLUGINS: &str = "/usr/lib/cni";

/// Has a plugin create `eth0` on every node, and returns the addresses. `more` is part of the configuration.
fn pods(plugin: &str, before: &str, more: &str) -> Option<(Lab, Vec<String>)> {
    for needed in [plugin, "host-local"] {
        if !Path::new(PLUGINS).join(needed).is_file() {
            skip(&format!("no {PLUGINS}/{needed} (Debian: containernetworking-plugins)"));
            return None;
        }
    }
    let lab = Options::nodes(4).start()?;
    lab.switch(&format!("for i in 0 1 2 3; do ip link del p$i; done; ip link del br0; {before}"));
    // The state of the plugins is in the lab's own /run, and goes with it.
    let configuration = format!(
        r#"{{"cniVersion": "0.4.0", "name": "lab", "type": "{plugin}", {more}
        "ipam": {{"type": "host-local", "dataDir": "/run/cni", "subnet": "10.79.0.0/24",
        "routes": [{{"dst": "0.0.0.0/0"}}]}}}}"#
    );
    let addresses = (0..lab.len()).map(|i| {
        let printed = lab.switch(&format!(
            "export CNI_COMMAND=ADD CNI_CONTAINERID=pod{i} CNI_NETNS=/run/netns/n{i} CNI_IFNAME=eth0 \
             CNI_PATH={PLUGINS}\n{PLUGINS}/{plugin} <<'END'\n{configuration}\nEND"
        ));
        let result: serde_json::Value = serde_json::from_str(&printed).unwrap();
        let address = result["ips"][0]["address"].as_str().unwrap();
        address.split('/').next().unwrap().to_owned()
    });
    let addresses = addresses.collect();
    Some((lab, addresses))
}

#[test]
fn pods_of_the_bridge_plugin_form_a_world_by_multicast() {
    let more = r#""bridge": "cni0", "isGateway": true,"#;
    let Some((lab, addresses)) = pods("bridge", ":", more) else { return };
    assert!(
        lab.switch("ip -o link show master cni0").lines().count() == 4,
        "the bridge is that of the plugin"
    );
    expect(&form_with(&lab, "bridge", ""), &[0, 1, 2, 3], &addresses[0], "eth0");
}

#[test]
fn pods_of_the_macvlan_plugin_form_a_world_by_multicast() {
    let uplink =
        "ip link add uplink type veth peer name switch; ip link set uplink up; ip link set switch up";
    let more = r#""master": "uplink", "mode": "bridge","#;
    let Some((lab, addresses)) = pods("macvlan", uplink, more) else { return };
    assert!(lab.at(0, "ip -d link show eth0").contains("macvlan"));
    expect(&form_with(&lab, "macvlan", ""), &[0, 1, 2, 3], &addresses[0], "eth0");
}

#[test]
fn pods_of_the_ptp_plugin_form_a_world_by_a_seed() {
    let Some((lab, addresses)) = pods("ptp", ":", "") else { return };
    let seed = format!("--seed {}", addresses[3]);
    expect(&form_with(&lab, "ptp", &seed), &[0, 1, 2, 3], &addresses[0], "eth0");
}
