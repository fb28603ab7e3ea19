//! Devices that have copies and no kernels: no rank is one. A copy may be recorded with the host as
//! its place, or with none.

use super::kept::Kept;
use super::{Fault, Group, shortened};
#[cfg(feature = "formats")]
use super::{Gathered, KernelText};
use crate::timeline::KernelClass;
#[cfg(feature = "formats")]
use crate::timeline::NameId;

fn only_copies(group: &Group) -> bool {
    let mut kernels = group.kernels.iter();
    kernels.all(|kernel| kernel.class == KernelClass::Copy)
}

/// The devices that have kernels. Copies that nothing tells the place of belong to the only device
/// that there is; others are left out.
pub(super) fn settled(
    kept: &Kept,
    groups: Vec<Group>,
    file: &str,
    notes: &mut Vec<String>,
) -> Result<Vec<Group>, Fault> {
    let (copies, mut groups): (Vec<_>, Vec<_>) = groups.into_iter().partition(only_copies);
    if groups.is_empty() {
        let copies = copies.iter().map(|group| group.kernels.len());
        return Err(Fault::OnlyCopies {
            copies: copies.sum(),
        });
    }
    let alone = groups.len() == 1;
    for mut copies in copies {
        let count = copies.kernels.len();
        let label = kept.devices.get(copies.device.id());
        match groups.first_mut() {
            Some(only) if alone && label.is_empty() => only.join(&mut copies),
            _ if label.is_empty() => notes.push(format!(
                "{file}: {count} copies whose GPU the file does not name were left out"
            )),
            _ => notes.push(format!(
                "{file}: device {} has copies only ({count}), so it is no rank; they were left out",
                shortened(label)
            )),
        }
    }
    Ok(groups)
}

impl Group {
    /// Takes the kernels of another.
    fn join(&mut self, other: &mut Self) {
        if !self.correlations.is_empty() || !other.correlations.is_empty() {
            self.correlations.resize(self.kernels.len(), None);
            other.correlations.resize(other.kernels.len(), None);
            self.correlations.append(&mut other.correlations);
        }
        self.kernels.append(&mut other.kernels);
    }
}

#[cfg(feature = "formats")]
impl Gathered {
    /// Takes the copies of another table of the same recording, or none of them where there are more streams, devices or
    /// names than are kept.
    pub(crate) fn absorb(&mut self, copies: &Self) -> Result<(), Fault> {
        let before = Vec::from_iter(self.groups.iter().map(|group| group.kernels.len()));
        let taken = self.take_all(copies);
        if taken.is_err() {
            self.groups.truncate(before.len());
            self.group_ids.retain(|_, at| *at < before.len());
            self.group = 0;
            for (group, before) in self.groups.iter_mut().zip(before) {
                group.kernels.truncate(before);
                group.correlations.truncate(before);
            }
        }
        taken
    }

    fn take_all(&mut self, copies: &Self) -> Result<(), Fault> {
        for group in &copies.groups {
            for copy in &group.kernels {
                let text = KernelText {
                    name: copies.kept.names.get(copy.name),
                    class: Some(copy.class),
                    stream: copies.kept.streams.get(NameId(copy.stream.0.into())),
                    device: copies.kept.devices.get(group.device.id()),
                    start: copy.start.0,
                    end: copy.end.0,
                };
                self.kernel(0, &text)?;
            }
        }
        Ok(())
    }
}
