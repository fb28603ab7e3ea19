# litd.service as probes see it. Sourced by them, besides the hardware (standin.sh says what that
# has); `found` is for them to set.

show() {
  systemctl show --property="$1" --value litd.service
}

say() {
  printf '%s=%s\n' "$1" "$2"
}

# until_true SECONDS COMMAND...
until_true() {
  local tries=$((10 * $1))
  shift
  until "$@"; do
    ((tries-- > 0)) || return 1
    sleep 0.1
  done
}

# Since systemctl may be asked while a restart is on its way.
is_running() { [[ $(show SubState) == running ]]; }
has_restarted() { [[ $(show NRestarts) -ge $1 ]] && is_running; }
is_steering() { [[ $(caps) != "$found" ]]; }
has_status() { [[ -n $(show StatusText) ]]; }
