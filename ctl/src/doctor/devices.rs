//! The devices as the daemon would find them, each asked once, within a deadline.

use std::error::Error;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use litd::config::Hardware;
use litd_power::{CapRange, Identity, Inventory, Notice, PowerDomain, Reading, Severity, Sharing};
use litd_units::Watts;
use serde::Serialize;

/// A driver that has not answered for so long is waited for no longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A device and what it answered.
#[derive(Debug, Serialize)]
pub struct Examined {
    pub identity: Identity,
    pub range: Option<CapRange>,
    pub reading: Option<Reading>,
    /// Why litd can't cap it.
    pub trouble: Vec<String>,
}

impl Examined {
    /// Whether litd can cap it, as far as can be told without writing.
    pub fn is_usable(&self) -> bool {
        self.trouble.is_empty()
    }
}

/// Finds and asks all devices.
pub fn examine(hardware: &Hardware) -> Result<(Vec<Examined>, Vec<Notice>), Box<dyn Error>> {
    let Inventory { domains, notices } = match &hardware.simulated {
        Some(socket) => match litd_power::simulated::discover(socket) {
            Ok(domains) => Inventory {
                domains,
                notices: Vec::new(),
            },
            Err(error) => Inventory {
                domains: Vec::new(),
                notices: vec![Notice::new(
                    Severity::Error,
                    socket.display().to_string(),
                    format!("the stand-in hardware does not answer: {error}"),
                )],
            },
        },
        None => {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()?;
            runtime.block_on(litd::devices::search(&hardware.search(), PATIENCE))?
        }
    };
    let mut examined = ask_all(domains)?;
    for it in &mut examined {
        it.heed(&notices);
    }
    Ok((examined, notices))
}

/// Asks all at the same time: drivers are slow, and one that hangs is waited for once.
fn ask_all(domains: Vec<Box<dyn PowerDomain>>) -> Result<Vec<Examined>, Box<dyn Error>> {
    let deadline = Instant::now() + PATIENCE;
    let mut asked = Vec::with_capacity(domains.len());
    for mut domain in domains {
        let (answer, answers) = mpsc::channel();
        let identity = domain.identity().clone();
        thread::Builder::new().spawn(move || {
            let range = domain.range();
            // There is no reader any more for an answer that comes too late.
            let _ = answer.send((range, domain.read()));
        })?;
        asked.push((identity, answers));
    }
    let examined = asked.into_iter().map(|(identity, answers)| {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut examined = Examined {
            trouble: shared(&identity),
            identity,
            range: None,
            reading: None,
        };
        match answers.recv_timeout(left) {
            Ok((range, reading)) => {
                examined.range = range.map_err(|error| examined.blame(&error)).ok();
                examined.reading = reading.map_err(|error| examined.blame(&error)).ok();
                examined.check_cap();
            }
            Err(_) => examined.trouble.push(format!(
                "its driver has not answered for {} s",
                PATIENCE.as_secs()
            )),
        }
        examined
    });
    Ok(examined.collect())
}

/// The effect of a cap on several tenants at once can't be decided for them.
fn shared(identity: &Identity) -> Vec<String> {
    let why = match identity.sharing {
        Sharing::Whole => return Vec::new(),
        Sharing::Mig => "MIG is on: its instances share one cap, and litd leaves it alone",
        Sharing::Partitioned => {
            "it is partitioned: the parts share one cap, and litd leaves it alone"
        }
        Sharing::Mps => "MPS is on: its clients share one cap, and litd leaves it alone",
    };
    vec![why.to_owned()]
}

impl Examined {
    fn blame(&mut self, error: &dyn Error) {
        let text = error.to_string();
        if !self.trouble.contains(&text) {
            self.trouble.push(text);
        }
    }

    /// The notices about this very device.
    fn heed(&mut self, notices: &[Notice]) {
        let errors = notices
            .iter()
            .filter(|notice| notice.severity == Severity::Error)
            .filter(|notice| notice.subject == self.identity.address);
        for notice in errors {
            self.trouble.push(notice.text.clone());
        }
    }

    /// An impossible cap could not be restored.
    fn check_cap(&mut self) {
        if let Some(reading) = &self.reading
            && !(reading.cap > Watts::ZERO)
        {
            let text = format!(
                "its driver reports a cap of {}, which is not possible",
                reading.cap
            );
            self.trouble.push(text);
        }
    }
}
