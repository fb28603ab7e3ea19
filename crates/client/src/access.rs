//! Why a control socket can't be opened, in words that help.

use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{Gid, Group};

/// The problem with the socket and a remedy.
pub fn why(socket: &Path, error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => {
            "there is no such socket: is litd running? (systemctl status litd; if it listens \
             elsewhere: --socket PATH)"
                .into()
        }
        ErrorKind::ConnectionRefused => {
            "nobody listens there: is litd running? (systemctl status litd)".into()
        }
        ErrorKind::PermissionDenied => match keeper(socket) {
            Some(group) => format!(
                "no permission: root and the group {group} may talk to litd (sudo, or \
                 usermod -aG {group} USER and a new login)"
            ),
            None => "no permission: root may talk to litd (sudo)".into(),
        },
        _ => format!("can't connect: {error} (systemctl status litd)"),
    }
}

/// The group that may go where we may not: that of the socket, or of the folder that hides it.
fn keeper(socket: &Path) -> Option<String> {
    let visible = socket.ancestors().find_map(|path| path.metadata().ok())?;
    let gid = Gid::from_raw(visible.gid());
    if gid.as_raw() == 0 {
        return None;
    }
    let name = Group::from_gid(gid).ok().flatten().map(|group| group.name);
    Some(name.unwrap_or_else(|| gid.to_string()))
}
