//! Access to the server: with a token, only clients that know it are answered.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The credential of systemd's (`LoadCredential=planner-token:FILE`) that holds it.
const CREDENTIAL: &str = "planner-token";
/// A shorter one is guessed; a longer one fits no header.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=1024;

/// The token that clients send as `Authorization: Bearer TOKEN`.
pub struct Token(Vec<u8>);

impl Token {
    /// The token to ask for: of a file that was named, or else systemd's credential; none where there is
    /// neither and only this machine's processes can connect, or `without` says that it is meant so.
    ///
    /// # Errors
    /// If a token can't be read or used, or is wanted and missing; the text says what to do.
    pub fn new(
        file: Option<&Path>,
        without: bool,
        listen: SocketAddr,
    ) -> Result<Option<Self>, String> {
        let credential = || {
            let folder = PathBuf::from(env::var_os("CREDENTIALS_DIRECTORY")?);
            Some(folder.join(CREDENTIAL)).filter(|it| it.exists())
        };
        match file.map(Path::to_owned).or_else(credential) {
            Some(path) => Self::read(&path).map(Some),
            None if without || listen.ip().is_loopback() => Ok(None),
            None => Err(format!(
                "{listen} can be reached from other machines, and there is no token: give --token-file FILE or \
                 systemd's credential {CREDENTIAL}, or --without-token where anybody who reaches it may use it \
                 (Zeus's own client sends no token)"
            )),
        }
    }

    fn read(path: &Path) -> Result<Self, String> {
        let text =
            fs::read_to_string(path).map_err(|cause| format!("{}: {cause}", path.display()))?;
        let token = text.trim();
        let is_usable =
            LENGTHS.contains(&token.len()) && token.bytes().all(|it| it.is_ascii_graphic());
        match is_usable {
            true => Ok(Self(token.into())),
            false => Err(format!(
                "{}: a token has {} to {} visible ASCII characters, such as `openssl rand -hex 32` makes",
                path.display(),
                LENGTHS.start(),
                LENGTHS.end()
            )),
        }
    }

    /// Whether an `Authorization` header has it. How long that takes tells nothing of how much was right.
    #[must_use]
    pub fn is_in(&self, header: Option<&[u8]>) -> bool {
        const SCHEME: usize = "Bearer ".len();
        let Some((scheme, sent)) = header.and_then(|it| it.split_at_checked(SCHEME)) else {
            return false;
        };
        let differs = |(own, sent): (&u8, &u8)| own ^ sent;
        let same = self
            .0
            .iter()
            .zip(sent)
            .map(differs)
            .fold(0, |all, it| all | it)
            == 0;
        scheme.eq_ignore_ascii_case(b"Bearer ") && sent.len() == self.0.len() && same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_taken() {
        let token = Token(b"0123456789abcdef".to_vec());
        let has = |text: &str| token.is_in(Some(text.as_bytes()));
        assert!(has("Bearer 0123456789abcdef") && has("bearer 0123456789abcdef"));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
            "Bearer 0123456789abcdeg",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
        ] {
            assert!(!has(wrong), "{wrong}");
        }
        assert!(!token.is_in(None));
    }
}
