//! What all requests share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};

use crate::keys::Keys;
use crate::register::Client;
use crate::table::Table;

pub(crate) struct Shared {
    pub(crate) issuer: String,
    /// What tokens can be had for, and with which scopes.
    pub(crate) resources: BTreeMap<String, BTreeSet<String>>,
    pub(crate) introspector: Option<(String, String)>,
    pub(crate) token_lifetime: Duration,
    pub(crate) clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
    keys: Mutex<Keys>,
    memory: Mutex<Memory>,
}

/// What the server remembers until it ends.
pub(crate) struct Memory {
    pub(crate) clients: Table<Client>,
    /// Questions that a user has not answered yet.
    pub(crate) tickets: Table<Ticket>,
    pub(crate) codes: Table<Code>,
    pub(crate) access: Table<Grant>,
    pub(crate) refresh: Table<Refresh>,
}

/// What somebody allows a client.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) client_id: String,
    pub(crate) user: String,
    pub(crate) resource: String,
    pub(crate) scopes: BTreeSet<String>,
    /// All tokens that came from one code end together.
    pub(crate) family: String,
}

/// What a client asks for, as far as it is known before the user has answered.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    pub(crate) client_id: String,
    pub(crate) redirect_uri: String,
    pub(crate) state: Option<String>,
    pub(crate) challenge: String,
    pub(crate) resource: String,
    pub(crate) scopes: BTreeSet<String>,
}

/// What a code stands for. It is kept when it was used, to notice if it is used again.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    pub(crate) grant: Grant,
    pub(crate) redirect_uri: String,
    pub(crate) challenge: String,
    pub(crate) is_used: bool,
}

/// What a refresh token stands for. It is kept when it was used, to notice if it is used again.
#[derive(Clone, Debug)]
pub(crate) struct Refresh {
    pub(crate) grant: Grant,
    pub(crate) is_used: bool,
}

impl Shared {
    pub(crate) fn new(issuer: String) -> Self {
        Self {
            issuer,
            resources: BTreeMap::new(),
            introspector: None,
            token_lifetime: Duration::from_secs(5 * 60),
            clock: Box::new(SystemTime::now),
            keys: Mutex::new(Keys::new()),
            memory: Mutex::new(Memory {
                clients: Table::new(1_000),
                tickets: Table::new(1_000),
                codes: Table::new(1_000),
                access: Table::new(10_000),
                refresh: Table::new(10_000),
            }),
        }
    }

    pub(crate) fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// In seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        let now = (self.clock)().duration_since(UNIX_EPOCH);
        now.map_or(0, |since| since.as_secs())
    }
}

impl Memory {
    /// Ends everything that came from one code.
    pub(crate) fn end_family(&mut self, family: &str) {
        self.access.retain(|grant| grant.family != family);
        self.refresh
            .retain(|refresh| refresh.grant.family != family);
    }
}

/// A text that nobody can guess.
pub(crate) fn random() -> String {
    let mut bytes = [0; 32];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.expect("the operating system has randomness");
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}
