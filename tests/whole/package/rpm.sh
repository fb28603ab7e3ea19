#!/bin/bash
# Runs in the booted container: takes the .rpm through its life on the stand-in hardware and says what was seen, one
# `name=value` a line. What is right is for tests/whole/package/rpm.rs to say. The system is Debian, so what the package
# depends on is not in rpm's database: that is left out, the scripts are not.
set -uo pipefail
# shellcheck source=../systemd/service.sh
source /opt/litd-test/service.sh
# shellcheck source=../systemd/rig.sh
source /opt/litd-test/hardware.sh

package() {
  rpm --nodeps "$@" >&2
}

files() {
  find /etc /usr -xdev \( -name '*litctl*' -o -name 'litd*' -o -name '_litd*' \) -not -path "$node*" \
    -not -name 'litd-probe.service*' | sort | tr '\n' ' '
}

is_dead() { [[ $(show MainPID) == 0 && $(show ActiveState) != activating ]]; }
has_job() { litctl status --json | grep --quiet '"boot"'; }
has_balance() { has_job && is_steering; }

say before "$(files)"
package --install /opt/litd-test/old.rpm
say install $?
say groups "$(getent group litd litd-admin litd-ingest | cut --delimiter=: --fields=1 | xargs)"
package --erase litd
say erase $?
say after_erase "$(files)"

hardware_start
found=$(caps)
say found "$found"
# This file is the administrator's: the package puts its own beside it.
package --install /opt/litd-test/old.rpm
systemctl start litd.service
until_true 10 is_running
until_true 20 has_balance
say steered "$(caps)"

configured=$(md5sum </etc/litd/litd.toml)
old=$(show MainPID)
package --upgrade /opt/litd-test/new.rpm
say upgrade $?
say upgraded_to "$(rpm --query --queryformat '%{VERSION}' litd)"
[[ $(show MainPID) != "$old" ]]
say new_process $?
until_true 20 has_balance
say steered_again "$(show ActiveState) $(caps)"
[[ $(md5sum </etc/litd/litd.toml) == "$configured" ]]
say kept_configuration $?

package --upgrade --oldpackage /opt/litd-test/old.rpm
say downgrade $?
until_true 20 has_balance
say steered_after_downgrade "$(show ActiveState) $(caps)"

# A crash that nobody cleans up after, and a removal.
mkdir -p /etc/systemd/system/litd.service.d
printf '[Service]\nRestart=no\nExecStopPost=\n' >/etc/systemd/system/litd.service.d/test.conf
systemctl daemon-reload
kill -KILL "$(show MainPID)"
until_true 10 is_dead
say crashed_caps "$(caps)"
package --erase litd
say remove $?
say removed_caps "$(caps)"
rm -r /etc/systemd/system/litd.service.d

hardware_report
echo journal:
journalctl --unit=litd.service --no-pager --output=cat
