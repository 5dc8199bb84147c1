//! A scenario: what happens, where it applies, and which behaviours it covers.

use std::pin::Pin;

use bowline_core::era::Dialect;

use crate::{Column, Transport, World};

/// Runs a scenario in a world.
pub type Run = fn(World) -> Pin<Box<dyn Future<Output = ()>>>;

/// Something that happens between a client and a server, written once for all transports and versions.
#[derive(Clone, Debug)]
#[must_use = "a scenario is run by the runner"]
pub struct Scenario {
    area: &'static str,
    name: &'static str,
    covers: &'static [&'static str],
    run: Run,
    transports: &'static [Transport],
    applies: fn(&Dialect) -> bool,
    since: &'static str,
}

/// Makes a [`Scenario`] of an async function and the behaviours that it covers.
#[macro_export]
macro_rules! scenario {
    ($run:ident, $($covers:literal),* $(,)?) => {
        $crate::Scenario::new(
            module_path!(),
            stringify!($run),
            &[$($covers),*],
            |world| Box::pin($run(world)),
        )
    };
}

impl Scenario {
    /// A scenario that applies everywhere.
    pub fn new(
        area: &'static str,
        name: &'static str,
        covers: &'static [&'static str],
        run: Run,
    ) -> Self {
        Self {
            area: area.rsplit("::").next().unwrap_or(area),
            name,
            covers,
            run,
            transports: Transport::ALL,
            applies: |_| true,
            since: "",
        }
    }

    /// Only in the versions with a handshake.
    pub fn legacy(self) -> Self {
        self.when(|dialect| !dialect.is_modern())
    }

    /// Only in the versions without a handshake.
    pub fn modern(self) -> Self {
        self.when(Dialect::is_modern)
    }

    /// Only in the versions for which this holds.
    pub fn when(mut self, applies: fn(&Dialect) -> bool) -> Self {
        self.applies = applies;
        self
    }

    /// Only from this version on.
    pub fn since(mut self, version: &'static str) -> Self {
        self.since = version;
        self
    }

    /// Only where there is a wire of which both ends are in the hands of the test.
    pub fn in_memory(mut self) -> Self {
        self.transports = &[Transport::Memory];
        self
    }

    /// Only where there is a child process.
    pub fn in_a_child(mut self) -> Self {
        self.transports = &[Transport::Stdio];
        self
    }

    /// Only over Streamable HTTP.
    pub fn over_http(mut self) -> Self {
        self.transports = &[Transport::Http, Transport::Http2];
        self
    }

    /// Only over HTTP+SSE.
    pub fn over_two_endpoints(mut self) -> Self {
        self.transports = &[Transport::HttpSse];
        self
    }

    /// Only where nothing else has a part in it, so that the clock can be stopped.
    pub fn in_one_process(mut self) -> Self {
        self.transports = &[Transport::InProcess, Transport::Memory];
        self
    }

    /// Only where the server has the test's own variables.
    pub fn with_shared_state(mut self) -> Self {
        self.transports = &[
            Transport::InProcess,
            Transport::Memory,
            Transport::Http,
            Transport::Http2,
            Transport::HttpSse,
        ];
        self
    }

    /// Whether it runs there.
    #[must_use]
    pub fn applies_to(&self, column: Column) -> bool {
        let Column { transport, dialect } = column;
        // Versions are dates, whose order is that of their letters.
        let is_recent = dialect.version >= self.since;
        self.transports.contains(&transport) && (self.applies)(dialect) && is_recent
    }

    /// What it is about.
    #[must_use]
    pub fn area(&self) -> &'static str {
        self.area
    }

    /// What happens, as a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        self.name.replace('_', " ")
    }

    /// Its area and its name.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}::{}", self.area, self.name)
    }

    /// The ids of the behaviours that it covers.
    #[must_use]
    pub fn covers(&self) -> &'static [&'static str] {
        self.covers
    }

    pub(crate) async fn run(&self, world: World) {
        (self.run)(world).await;
    }
}
