# llama.cpp: rank 0 serves a model with the devices of all nodes. The others lend it theirs.
#   mingle run --job-id foo --world 3 -o template=llama.cpp.tmpl=/tmp/llama.sh -- bash /tmp/llama.sh -m model.gguf
if [ 1 != 0 ]; then
    exec ggml-rpc-server --host 10.0.0.2 --port 29504
fi
until (: </dev/tcp/10.0.0.1/29503) 2>/dev/null; do sleep 1; done
until (: </dev/tcp/10.0.0.2/29505) 2>/dev/null; do sleep 1; done
exec llama-server "$@" --rpc 10.0.0.1:29503,10.0.0.2:29505
