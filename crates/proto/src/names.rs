//! The kernel names of one connection.

use std::ops::Range;

use crate::error::WireError;
use crate::limits::{Limits, within};

/// The kernel names of one connection: each is sent once, and then called by its id, which is its
/// place here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameDictionary {
    names: Vec<String>,
    bytes: usize,
}

impl NameDictionary {
    /// Appends [`Kernels::new_names`](crate::Kernels) and answers with their ids. The same text
    /// may come twice and then has two ids.
    ///
    /// # Errors
    /// [`WireError::Limit`] if there would be more names, or bytes in all of them, than `limits`
    /// allow; nothing has been appended then.
    pub fn extend(&mut self, new: &[String], limits: &Limits) -> Result<Range<u32>, WireError> {
        let names = self.names.len().saturating_add(new.len());
        let bytes = new
            .iter()
            .fold(self.bytes, |sum, name| sum.saturating_add(name.len()));
        // Ids are 32 bits on the wire.
        within(
            "kernel names of the connection",
            names,
            limits.names.min(u32::MAX as usize),
        )?;
        within(
            "bytes of the connection's kernel names",
            bytes,
            limits.name_bytes,
        )?;
        let first = self.names.len() as u32;
        self.names.extend_from_slice(new);
        self.bytes = bytes;
        Ok(first..names as u32)
    }

    /// The name with this id; `None` if none was sent.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&str> {
        self.names.get(id as usize).map(String::as_str)
    }

    /// How many names there are: the next one's id.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether no name was sent so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All names, by id.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn ids_count_on_from_frame_to_frame() {
        let limits = Limits::default();
        let mut names = NameDictionary::default();
        assert_eq!(names.extend(&texts(&["gemm", "relu"]), &limits), Ok(0..2));
        assert_eq!(names.extend(&[], &limits), Ok(2..2));
        assert_eq!(names.extend(&texts(&["norm"]), &limits), Ok(2..3));
        assert_eq!(names.get(2), Some("norm"));
        assert_eq!(names.get(3), None);
        assert_eq!(Vec::from_iter(names.iter()), ["gemm", "relu", "norm"]);
    }

    #[test]
    fn what_is_above_a_limit_leaves_the_dictionary_as_it_was() {
        let limits = Limits {
            names: 3,
            name_bytes: 6,
            ..Limits::default()
        };
        let mut names = NameDictionary::default();
        assert_eq!(names.extend(&texts(&["aa", "bb"]), &limits), Ok(0..2));
        let before = names.clone();
        for new in [texts(&["c", "d"]), texts(&["ccc"])] {
            assert!(matches!(
                names.extend(&new, &limits),
                Err(WireError::Limit { .. })
            ));
            assert_eq!(names, before);
        }
        assert_eq!(names.extend(&texts(&["cc"]), &limits), Ok(2..3));
    }
}
