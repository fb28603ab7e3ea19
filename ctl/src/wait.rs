//! Waiting that SIGTERM and SIGINT end.

use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The time between two looks, which a signal ends. One that comes between two waits ends the next one.
pub struct Wait {
    runtime: Runtime,
    interval: Duration,
    terminate: Signal,
    interrupt: Signal,
}

impl Wait {
    pub fn new(interval: Duration) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (terminate, interrupt) = {
            let _entered = runtime.enter();
            (
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
            )
        };
        Ok(Self {
            runtime,
            interval,
            terminate,
            interrupt,
        })
    }

    /// Waits. Answers whether it was told to end.
    pub fn is_over(&mut self) -> bool {
        let (terminate, interrupt) = (&mut self.terminate, &mut self.interrupt);
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                _ = terminate.recv() => true,
                _ = interrupt.recv() => true,
                () = tokio::time::sleep(self.interval) => false,
            }
        })
    }
}
