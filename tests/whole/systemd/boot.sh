#!/bin/bash
# Boots this machine's own systemd in a container, over a copy of / that is thrown away, and runs
# a probe in it.
#
#   boot.sh PROBE [FROM:TO]...
#
# PROBE is a script; FROM (a file) lies at TO in the container, with its mode. The probe's standard
# output is this script's, its exit status too. 77: this machine can't boot one, and why.
set -euo pipefail

limit_seconds=150

skip() {
  echo "$*" >&2
  exit 77
}

if [[ -z ${LITD_BOOT_NAMESPACE:-} ]]; then
  [[ $EUID -eq 0 ]] || skip "booting a container needs root"
  command -v systemd-nspawn >/dev/null || skip "systemd-nspawn (systemd-container) is not installed"
  unshare --mount true 2>/dev/null || skip "mount namespaces are not allowed here"
  # Mounts of our own vanish with us, whatever ends us.
  LITD_BOOT_NAMESPACE=1 exec unshare --mount --propagation private "$BASH" "$0" "$@"
fi

probe=$1
shift

# nspawn must find nothing of this machine's services and containers.
mount -t tmpfs -o mode=0755 tmpfs /run
work=/run/litd-boot
mkdir -p "$work"/{upper,scratch,root,shared}
mount -t overlay overlay "$work/root" \
  -o "lowerdir=/,upperdir=$work/upper,workdir=$work/scratch" 2>/dev/null ||
  skip "an overlay of / can't be mounted here"
root=$work/root

for file in "$@"; do
  install -D --mode="$(stat --format=%a "${file%%:*}")" "${file%%:*}" "$root${file#*:}"
done
install -D --mode=755 "$probe" "$root/opt/litd-test/probe"
# First boot: an identity of its own.
echo uninitialized >"$root/etc/machine-id"
cat >"$root/etc/systemd/system/litd-probe.service" <<'UNIT'
[Unit]
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
StandardOutput=file:/mnt/stdout
StandardError=file:/mnt/stderr
ExecStart=/opt/litd-test/probe
ExecStopPost=/bin/bash -c 'echo "$EXIT_STATUS" >/mnt/status'
UNIT

# The probe wants what every service wants (sysinit, journal, D-Bus), and nothing else is started.
timeout --kill-after=5 "$limit_seconds" systemd-nspawn --quiet --directory="$root" --boot \
  --register=no --keep-unit --private-network --console=pipe --bind="$work/shared:/mnt" \
  systemd.unit=litd-probe.service >"$work/console" 2>&1 </dev/null || true

if [[ ! -e $work/shared/stdout ]]; then
  tail -n 20 "$work/console" >&2
  skip "systemd does not boot in a container here"
fi
cat "$work/shared/stdout"
cat "$work/shared/stderr" >&2
exit "$(cat "$work/shared/status" || echo 124)"
