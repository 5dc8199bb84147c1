//! [`PinnedServer`]: the pins of a server, and the files that they are in.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline::{Json, Result, RpcError};
use tokio::sync::{Mutex, MutexGuard, OwnedMutexGuard};
use tokio::time::Instant;

use super::set::invalid;
use crate::config::{BridgeConfig, NewToolPolicy, UpstreamConfig};
use crate::pins::Pins;

/// The open files of pins. Servers share those that have the same path.
#[derive(Clone, Default)]
pub(super) struct PinFiles(BTreeMap<PathBuf, Arc<PinFile>>);

struct PinFile {
    pins: Arc<Mutex<Pins>>,
    /// When the file was last read because a call was refused.
    read_again: Mutex<Option<Instant>>,
}

/// The pins of one server.
pub(super) struct PinnedServer {
    server: String,
    new_tools: NewToolPolicy,
    file: Arc<PinFile>,
    /// How many connections had been opened when all tools were last checked; 0 for never.
    checked: AtomicU64,
    /// Held while the tools are listed for a call.
    listing: Mutex<()>,
}

impl PinFiles {
    /// Opens the files of a configuration, and reads those again that are open. Runs on the calling thread.
    pub(super) fn reopened(&self, config: &BridgeConfig) -> Result<Self> {
        let mut files = BTreeMap::new();
        for pin in config
            .upstreams()
            .filter_map(|it| it.settings().pin.as_ref())
        {
            if files.contains_key(&pin.file) {
                continue;
            }
            let file = match self.0.get(&pin.file) {
                Some(file) => {
                    // If it is being saved at this moment, it is being read too.
                    if let Ok(mut pins) = file.pins.try_lock() {
                        pins.save().map_err(invalid)?;
                    }
                    file.clone()
                }
                None => Arc::new(PinFile {
                    pins: Arc::new(Mutex::new(Pins::open(&pin.file).map_err(invalid)?)),
                    read_again: Mutex::default(),
                }),
            };
            files.insert(pin.file.clone(), file);
        }
        Ok(Self(files))
    }

    /// Returns the pins of a server, if it has any.
    pub(super) fn of(&self, server: &UpstreamConfig) -> Option<PinnedServer> {
        let pin = server.settings().pin.as_ref()?;
        Some(PinnedServer {
            server: server.name().to_owned(),
            new_tools: pin.new_tools,
            file: self.0.get(&pin.file)?.clone(),
            checked: AtomicU64::new(0),
            listing: Mutex::default(),
        })
    }
}

impl PinnedServer {
    /// Compares a page of tools with the pins, and saves what is new.
    pub(super) async fn check_page(&self, cursor: Option<&str>, page: &Json) {
        let (server, new_tools, page) = (self.server.clone(), self.new_tools, page.clone());
        let cursor = cursor.map(str::to_owned);
        self.blocking(move |pins| {
            for tool in pins.check_page(&server, new_tools, cursor.as_deref(), &page) {
                let diff = pins.diff(&server, &tool).unwrap_or_default();
                tracing::warn!(
                    server,
                    tool,
                    "the definition of a tool is quarantined:\n{diff}"
                );
            }
            if pins.has_changes() {
                save(pins);
            }
        })
        .await;
    }

    /// Returns the pins, to see which tools are offered.
    pub(super) async fn lock(&self) -> MutexGuard<'_, Pins> {
        self.file.pins.lock().await
    }

    /// Checks that a tool may be called. The tools must have been listed.
    pub(super) async fn check_call(&self, tool: &str) -> std::result::Result<(), RpcError> {
        let checked = self.lock().await.check_call(&self.server, tool);
        if checked.is_ok() || !self.may_read_again().await {
            return checked;
        }
        // It may have been accepted by another process.
        self.blocking(save).await;
        self.lock().await.check_call(&self.server, tool)
    }

    /// Returns a guard if the tools must be listed before a call: those of a new process may be others. `opened` is the
    /// number of connections so far.
    pub(super) async fn must_list(&self, opened: impl Fn() -> u64) -> Option<MutexGuard<'_, ()>> {
        let is_checked = || opened() > 0 && self.checked.load(Ordering::Relaxed) == opened();
        if is_checked() {
            return None;
        }
        let listing = self.listing.lock().await;
        (!is_checked()).then_some(listing)
    }

    pub(super) fn set_checked(&self, opened: u64) {
        self.checked.store(opened, Ordering::Relaxed);
    }

    /// Makes the next call list the tools again.
    pub(super) fn forget_checked(&self) {
        self.set_checked(0);
    }

    async fn may_read_again(&self) -> bool {
        let mut last = self.file.read_again.lock().await;
        let is_due = last.is_none_or(|last| last.elapsed() >= READ_AGAIN_AFTER);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }

    /// Calls `work` where it may read and write files.
    async fn blocking(&self, work: impl FnOnce(&mut Pins) + Send + 'static) {
        let mut pins: OwnedMutexGuard<Pins> = self.file.pins.clone().lock_owned().await;
        let done = tokio::task::spawn_blocking(move || work(&mut pins)).await;
        if let Err(error) = done {
            tracing::error!(%error, "failed to check pins");
        }
    }
}

fn save(pins: &mut Pins) {
    if let Err(error) = pins.save() {
        let error = invalid(error);
        tracing::error!(%error, "failed to save pins; they are kept in memory");
    }
}

/// How often a refused call makes the bridge read the file.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(1);
