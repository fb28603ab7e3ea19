//! A list in pieces: it never moves while it grows, and is freed piece by piece while it is
//! consumed. Of a file with millions of kernels, memory holds them once.

/// The length of a piece.
const PIECE: usize = 1 << 14;

/// A list in pieces.
#[derive(Debug)]
pub(crate) struct Pieces<T>(Vec<Vec<T>>);

impl<T> Default for Pieces<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Pieces<T> {
    pub(crate) fn push(&mut self, item: T) {
        match self.0.last_mut() {
            Some(piece) if piece.len() < PIECE => piece.push(item),
            // The first grows as it must: most files are small.
            None => self.0.push(vec![item]),
            Some(_) => {
                let mut piece = Vec::with_capacity(PIECE);
                piece.push(item);
                self.0.push(piece);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> IntoIterator for Pieces<T> {
    type Item = T;
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Vec<T>>>;

    /// Each piece is freed once its last item was taken.
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_in_order() {
        let mut pieces = Pieces::default();
        assert!(pieces.is_empty());
        let count = 2 * PIECE + 1;
        for item in 0..count {
            pieces.push(item);
        }
        assert!(pieces.into_iter().eq(0..count));
    }
}
