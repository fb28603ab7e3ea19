# The real daemon's hardware: litd-rig-node with a job whose caps litd moves. Sourced by probe.sh;
# standin.sh says what such a file has.
node=/run/litd-rig

hardware_start() {
  mkdir -p "$node" /etc/litd
  cat >/etc/litd/litd.toml <<CONFIG
mode = "on"
policy = "gpu-realloc"
[law.calibration]
warm_up = 5
[law.detection]
window = 1
[hardware]
simulated = "$node/hardware.sock"
[state]
# As with real devices: the unit lets the daemon write there.
locks = "/run/litd/devices"
CONFIG
  /opt/litd-test/litd-rig-node "$node" /run/litd/ingest.sock &
  until_true 10 test -e "$node/state"
}

caps() {
  # The state is as old as that at most.
  sleep 0.2
  sed --quiet 's/^held=//p' "$node/state"
}

has_reloaded() {
  journalctl --unit=litd.service --output=cat | grep --quiet 'configuration read anew'
}

hardware_report() {
  say baseline "$(cut -d' ' -f1 /run/litd/baseline | head -n 1)"
  cat "$node/state"
}
