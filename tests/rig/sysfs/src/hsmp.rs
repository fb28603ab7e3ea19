//! EPYC sockets behind the Host System Management Port (drivers/platform/x86/amd/hsmp, uapi
//! asm/amd_hsmp.h): a hwmon per socket on newer kernels, `/dev/hsmp` on all.

use litd_power::{CapRange, Reading};
use litd_rig::Hardware;
use litd_units::Watts;
use nix::errno::Errno;

use crate::amdgpu::{hwmon, hwmons};
use crate::board::Device;
use crate::cpu::{microwatts, reading, store};
use crate::tree::{Attribute, Call, Directory, parse};

/// `HSMP_IOCTL_CMD`: `_IOWR(0xf8, 0, struct hsmp_message)`.
const COMMAND: u32 = 0xC02C_F800;
/// `struct hsmp_message`, packed to 4: msg_id u32, num_args u16, response_sz u16, args 8 x u32,
/// sock_ind u16.
const SIZE: usize = 44;
const ARGUMENTS: usize = 8;
const SOCKET: usize = 40;

/// The interface's protocol version, from EPYC 9004 on.
const PROTOCOL: u32 = 6;

/// Puts a socket's hwmon there, after the GPUs'.
pub(crate) fn add_hwmon(sys: &mut Directory, hardware: &Hardware, socket: &Device, gpus: usize) {
    let name = hwmon(hwmons(gpus) + socket.number, socket);
    // The driver hsmp_acpi has a device for each socket.
    let device = format!("AMDI0097:{:02}", socket.number);
    let path = format!("devices/platform/{device}/hwmon/{name}");
    sys.link(&format!("class/hwmon/{name}"), &format!("../../{path}"));
    sys.link(&format!("{path}/device"), &format!("../../../{device}"));
    sys.texts(&path, &[("name", "amd_hsmp_hwmon")]);
    let socket = *socket;
    let mut sensor = |name: &str, value: fn(&Reading, CapRange) -> Option<Watts>| {
        let attribute = Attribute::number(socket, move |hardware| {
            let reading = reading(hardware, socket)?;
            let value = value(&reading, range(hardware, socket)?);
            Ok(microwatts(value.ok_or(Errno::EOPNOTSUPP)?))
        });
        sys.file(&format!("{path}/{name}"), attribute);
    };
    sensor("power1_input", |reading, _| reading.power);
    sensor("power1_cap_max", |_, range| Some(range.highest));
    let cap = Attribute::number(socket, move |hardware| {
        Ok(microwatts(reading(hardware, socket)?.cap))
    });
    let cap = cap.store(socket.writable(hardware), move |hardware, data| {
        let milliwatts = parse(data)? / 1_000;
        store(hardware, socket, watts(milliwatts), Errno::ENOMSG)
    });
    sys.file(&format!("{path}/power1_cap"), cap);
}

/// Puts `/dev/hsmp` there.
pub(crate) fn add_device(dev: &mut Directory, hardware: &Hardware, sockets: Vec<Device>) {
    let mode = match sockets
        .iter()
        .all(|socket| socket.writable(hardware) == 0o644)
    {
        true => 0o644,
        false => 0o444,
    };
    let control = move |hardware: &mut Hardware, call: &Call<'_>| answer(hardware, &sockets, call);
    dev.file("hsmp", Attribute::control(mode, control));
}

/// The number of the socket that a message is for.
pub(crate) fn addressee(message: &[u8]) -> Option<usize> {
    let number = message.get(SOCKET..SOCKET + 2)?.try_into().ok()?;
    Some(u16::from_le_bytes(number).into())
}

/// The answer to a message.
fn answer(hardware: &mut Hardware, sockets: &[Device], call: &Call<'_>) -> Result<Vec<u8>, Errno> {
    if call.command != COMMAND {
        return Err(Errno::ENOTTY);
    }
    let mut message = call.data.to_vec();
    if message.len() != SIZE {
        return Err(Errno::EINVAL);
    }
    let short = |at: usize| u16::from_le_bytes([message[at], message[at + 1]]);
    let word = |at: usize| u32::from(short(at)) | u32::from(short(at + 2)) << 16;
    let id = word(0);
    let counts = (short(4), short(6));
    let expected = match id {
        0x01 => (1, 1),
        0x03 | 0x04 | 0x06 | 0x07 => (0, 1),
        0x05 => (1, 0),
        _ => return Err(Errno::ENOMSG),
    };
    if counts != expected {
        return Err(Errno::EINVAL);
    }
    let argument = word(ARGUMENTS);
    let socket = *sockets
        .get(usize::from(short(SOCKET)))
        .ok_or(Errno::ENODEV)?;
    let now = reading(hardware, socket)?;
    let response = match id {
        0x01 => argument.wrapping_add(1),
        0x03 => PROTOCOL,
        0x04 => milliwatts(now.power.unwrap_or(Watts::ZERO)),
        0x06 => milliwatts(now.cap),
        0x07 => milliwatts(range(hardware, socket)?.highest),
        _ if !call.writable => return Err(Errno::EPERM),
        _ => {
            store(hardware, socket, watts(argument.into()), Errno::ENOMSG)?;
            argument
        }
    };
    message[ARGUMENTS..ARGUMENTS + 4].copy_from_slice(&response.to_le_bytes());
    Ok(message)
}

fn range(hardware: &Hardware, socket: Device) -> Result<CapRange, Errno> {
    let listed = hardware.listed(socket.index).ok_or(Errno::ENODEV)?;
    Ok(listed.range)
}

fn watts(milliwatts: u64) -> Watts {
    Watts(milliwatts as f64 / 1e3)
}

fn milliwatts(power: Watts) -> u32 {
    (power.0 * 1e3).round() as u32
}
