# The hardware of standin.pl, sourced by probe.sh. Whatever is probed brings such a file:
#   hardware_start   makes the devices be there, and whatever makes litd move caps
#   caps             prints the caps that the hardware holds now
#   has_reloaded     whether SIGHUP has been heeded
#   hardware_report  prints what else is to be known, one name=value a line

hardware_start() {
  # One place that the unit may write, and one that it may not. Both could be written here.
  mount -t tmpfs tmpfs /sys/devices/virtual
  mount -t tmpfs tmpfs /sys/kernel
  mkdir /sys/devices/virtual/powercap
  echo 700 >/sys/devices/virtual/powercap/cap
  mkdir -p /etc/litd
  echo "# good" >/etc/litd/litd.toml
}

caps() {
  cat /sys/devices/virtual/powercap/cap
}

has_reloaded() {
  [[ $(show StatusText) == reloaded ]]
}

hardware_report() {
  :
}
