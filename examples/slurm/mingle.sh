#!/bin/sh
# The variables of a world for every step that asks for them, so that users type nothing but `srun torchrun train.py`.
# As Slurm's TaskProlog, in slurm.conf, with Slurm 22.05 or later:
#
#     TaskProlog=/etc/slurm/mingle.sh
#
# and for containers as a hook of enroot, /etc/enroot/hooks.d/40-mingle.sh. Both run it as the user. A step asks by
# MINGLE_SLURM=1, in the environment of srun: set it in the module of torch, in /etc/profile.d, or by hand.

# Steps that do not ask, of one node, and the shell of a batch script are left alone.
[ "${MINGLE_SLURM:-}" = 1 ] && [ -n "${SLURM_STEP_ID:-}" ] && [ "${SLURM_STEP_NUM_NODES:-1}" -gt 1 ] || exit 0

# All tasks of a step start together. Nothing of this, and no PATH, stays in the step.
MINGLE_TIMEOUT=${MINGLE_TIMEOUT:-60s} PATH=$PATH:/usr/local/bin:/usr/bin:/bin
export MINGLE_TIMEOUT PATH

# A step that is started within another one has that one's MINGLE_JOB_ID in its environment, which must not count.
set -- --quiet --format dotenv --job-id "slurm-$SLURM_JOB_ID.$SLURM_STEP_ID"
# With several tasks on a node each is a rank of its own, as PyTorch counts workers; a container has one environment.
if [ "${SLURM_STEP_NUM_TASKS:-1}" -gt "$SLURM_STEP_NUM_NODES" ]; then
    [ -z "${ENROOT_ENVIRON:-}" ] || exit 0
    set -- "$@" --rank "$SLURM_PROCID" --world "$SLURM_STEP_NUM_TASKS" --slots 1
    echo "export LOCAL_RANK=$SLURM_LOCALID"
fi

if [ -n "${ENROOT_ENVIRON:-}" ]; then
    variables=$(mingle "$@") || exit
    printf '%s\n' "$variables" >>"$ENROOT_ENVIRON"
    exit
fi
# Slurm reads `export NAME=value` to the end of the line, without a shell, and shows the user what follows `print`.
exec 3>&1
variables=$({ mingle "$@" 2>&1 >&4 | sed 's/^/print /' >&3; } 4>&1)
[ -n "$variables" ] && printf '%s\n' "$variables" | sed 's/^/export /'
