#!/bin/bash
# Runs in the booted container: takes the package through its life and says what was seen, one
# `name=value` a line. What is right is for tests/whole/package.rs to say.
set -uo pipefail
# shellcheck source=../systemd/service.sh
source /opt/litd-test/service.sh
# shellcheck source=../systemd/rig.sh
source /opt/litd-test/hardware.sh

package() {
  # What dpkg has others do, such as the index of pages, is not the test's.
  dpkg --no-triggers "$@" >&2
}

# Everything of litd's that is on the disk, but for what dpkg and the journal remember.
files() {
  find /etc /usr /var/lib /run -xdev \( -name '*litctl*' -o -name 'litd*' -o -name '_litd*' \) \
    -not -path "$node*" -not -name 'litd-probe.service*' | sort | tr '\n' ' '
}

is_dead() { [[ $(show MainPID) == 0 && $(show ActiveState) != activating ]]; }
has_job() { litctl status --json | grep --quiet '"boot"'; }
has_balance() { has_job && is_steering; }

# A server starts services on installation; an image for building containers may say not to.
rm -f /usr/sbin/policy-rc.d
say before "$(files)"

# On a machine that has never seen it.
package --install /opt/litd-test/old.deb
say install $?
until_true 10 is_running
say fresh "$(show ActiveState) $(show Result)"
say enabled "$(systemctl is-enabled litd.service)"
cmp --silent /etc/litd/litd.toml <(litd default-config)
say shipped_configuration $?
say version "$(litd --version), $(litctl --version)"
say pages "$(man --where litd litctl litctl-status litd-restore | wc --lines)"
say groups "$(getent group litd litd-admin litd-ingest | cut --delimiter=: --fields=1 | xargs)"
package --purge litd
say purge $?
say after_purge "$(files)"

# On one that was given its configuration before: this file is the administrator's.
hardware_start
found=$(caps)
say found "$found"
sed --in-place 's/^mode = .*/mode = "observe"/' /etc/litd/litd.toml
package --force-confold --install /opt/litd-test/old.deb
say second_install $?
until_true 10 is_running
until_true 10 has_job
say started "$(show ActiveState) $(show Result)"
say observing "$(litctl status --json | grep --only-matching '"mode": *"[a-z]*"' | head -n 1)"
say observed_caps "$(caps)"
sed --in-place 's/^mode = .*/mode = "on"/' /etc/litd/litd.toml
systemctl reload litd.service
until_true 20 is_steering
say steered "$(caps)"

# An upgrade under that job.
configured=$(md5sum </etc/litd/litd.toml)
old=$(show MainPID)
package --install /opt/litd-test/new.deb
say upgrade $?
say upgraded_to "$(dpkg-query --show --showformat='${Version}' litd)"
[[ $(show MainPID) != "$old" ]]
say new_process $?
until_true 20 has_balance
say steered_again "$(show ActiveState) $(show NRestarts) $(caps)"
[[ $(md5sum </etc/litd/litd.toml) == "$configured" ]]
say kept_configuration $?

# A crash that nobody cleans up after, and a removal.
mkdir -p /etc/systemd/system/litd.service.d
printf '[Service]\nRestart=no\nExecStopPost=\n' >/etc/systemd/system/litd.service.d/test.conf
systemctl daemon-reload
kill -KILL "$(show MainPID)"
until_true 10 is_dead
say crashed_caps "$(caps)"
package --remove litd
say remove $?
say removed_caps "$(caps)"
rm -r /etc/systemd/system/litd.service.d
say after_remove "$(files)"

package --purge litd
say last_purge $?
say after_last_purge "$(files)"

hardware_report
echo journal:
journalctl --unit=litd.service --no-pager --output=cat
