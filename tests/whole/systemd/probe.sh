#!/bin/bash
# Runs in the booted container: takes litd.service through its life and says what was seen, one
# `name=value` a line. What is right is for tests/whole/systemd.rs to say.
set -uo pipefail
# shellcheck source=service.sh
source /opt/litd-test/service.sh
# shellcheck source=standin.sh
source /opt/litd-test/hardware.sh

hardware_start
found=$(caps)
say found "$found"

# What a package does at installation.
systemd-sysusers /usr/lib/sysusers.d/litd.conf || say sysusers failed
systemd-tmpfiles --create /usr/lib/tmpfiles.d/litd.conf || say tmpfiles failed
say runtime_directory "$(stat --format='%a %U' /run/litd)"

# The same unit with less patience.
mkdir -p /etc/systemd/system/litd.service.d
cat >/etc/systemd/system/litd.service.d/test.conf <<'DROPIN'
[Service]
WatchdogSec=2
TimeoutAbortSec=1
RestartSec=100ms
DROPIN
systemctl daemon-reload

systemctl start litd.service || journalctl --unit=litd --no-pager >&2
say started "$(show ActiveState) $(show Result)"
until_true 10 is_steering
say steered "$(caps)"
until_true 5 has_status
say watchdog "$(show WatchdogUSec)"
say status "$(show StatusText)"
say state_directory "$(stat --format='%a %U' /var/lib/litd)"
say control_group "$(stat --format=%G /run/litd/control.sock)"

systemctl reload litd.service
say reload $?
until_true 5 has_reloaded
say reloaded $?

# A loop that hangs.
kill -STOP "$(show MainPID)"
until_true 30 has_restarted 1
say after_hang "$(show SubState) $(show NRestarts)"
until_true 10 is_steering
say after_hang_caps "$(caps)"

# Killed.
kill -KILL "$(show MainPID)"
until_true 30 has_restarted 2
say after_kill "$(show SubState) $(show NRestarts)"
until_true 10 is_steering

systemctl stop litd.service
say stopped "$(show ActiveState) $(show Result)"
say after_stop_caps "$(caps)"
say after_stop_directory "$(stat --format='%a %U' /run/litd)"

# A hang-up before the daemon holds signals, once.
cat >/etc/systemd/system/litd.service.d/hangup.conf <<'DROPIN'
[Service]
ExecStart=
ExecStart=/bin/sh -c 'test -e /run/litd/hung || { touch /run/litd/hung; kill -HUP $$$$; }; \
  exec /usr/sbin/litd --config /etc/litd/litd.toml'
DROPIN
systemctl daemon-reload
systemctl start litd.service 2>/dev/null
until_true 30 has_restarted 1
say after_hangup "$(show SubState) $(show NRestarts)"
systemctl stop litd.service
rm /etc/systemd/system/litd.service.d/hangup.conf
systemctl daemon-reload

# A configuration that can't be read.
echo "bad = bad" >/etc/litd/litd.toml
systemctl start litd.service 2>/dev/null
sleep 1
say bad_configuration "$(show ActiveState) $(show ExecMainStatus) $(show NRestarts)"
say after_bad_caps "$(caps)"

hardware_report
echo journal:
journalctl --unit=litd.service --no-pager --output=cat
