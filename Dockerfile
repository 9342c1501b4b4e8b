# One static program and nothing else:
#
#     RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --release \
#         --target x86_64-unknown-linux-gnu --target-dir target/static
#     docker build --tag mingle .
#     docker run --rm --network host mingle --job-id foo --world 4
#
# Or take the program into an image of your own: COPY --from=mingle /mingle /usr/local/bin/
# In Kubernetes an init container of this image brings it into any image: see examples/kubernetes/jobset.yaml.
FROM scratch
ARG program=target/static/x86_64-unknown-linux-gnu/release/mingle
COPY ${program} /mingle
ENTRYPOINT ["/mingle"]
