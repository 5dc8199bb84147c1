//! A scenario: its function, the columns to which it applies, and the behaviours it covers.

use std::pin::Pin;

use bowline_core::era::Dialect;

use crate::{Column, ScenarioEnv, Transport};

/// Runs a scenario in an environment.
pub type Run = fn(ScenarioEnv) -> Pin<Box<dyn Future<Output = ()>>>;

/// An interaction of a client and a server, written once for all transports and versions.
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

/// Creates a [`Scenario`] from an async function and the behaviours that it covers.
#[macro_export]
macro_rules! scenario {
    ($run:ident, $($covers:literal),* $(,)?) => {
        $crate::Scenario::new(
            module_path!(),
            stringify!($run),
            &[$($covers),*],
            |env| Box::pin($run(env)),
        )
    };
}

impl Scenario {
    /// Creates a scenario that applies to every column.
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

    /// Restricts it to the legacy versions, which have a handshake.
    pub fn legacy(self) -> Self {
        self.when(|dialect| !dialect.is_modern())
    }

    /// Restricts it to the modern versions, which have no handshake.
    pub fn modern(self) -> Self {
        self.when(Dialect::is_modern)
    }

    /// Restricts it to the versions for which `applies` returns true.
    pub fn when(mut self, applies: fn(&Dialect) -> bool) -> Self {
        self.applies = applies;
        self
    }

    /// Restricts it to this version and later ones.
    pub fn since(mut self, version: &'static str) -> Self {
        self.since = version;
        self
    }

    /// Restricts it to the in-memory wire, of which the test controls both ends.
    pub fn in_memory(mut self) -> Self {
        self.transports = &[Transport::Memory];
        self
    }

    /// Restricts it to child processes.
    pub fn over_stdio(mut self) -> Self {
        self.transports = &[Transport::Stdio];
        self
    }

    /// Restricts it to Streamable HTTP.
    pub fn over_http(mut self) -> Self {
        self.transports = &[Transport::Http, Transport::Http2];
        self
    }

    /// Restricts it to Streamable HTTP over HTTP/1.1.
    pub fn over_http1(mut self) -> Self {
        self.transports = &[Transport::Http];
        self
    }

    /// Restricts it to HTTP+SSE.
    pub fn over_http_sse(mut self) -> Self {
        self.transports = &[Transport::HttpSse];
        self
    }

    /// Restricts it to transports without a socket or child process, on which the clock can be paused.
    pub fn in_one_process(mut self) -> Self {
        self.transports = &[Transport::InProcess, Transport::Memory];
        self
    }

    /// Restricts it to transports on which the server runs in the process of the test.
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

    /// Whether it runs in this column.
    #[must_use]
    pub fn applies_to(&self, column: Column) -> bool {
        let Column { transport, dialect } = column;
        // Versions are ISO dates, which sort as strings.
        let is_recent = dialect.version >= self.since;
        self.transports.contains(&transport) && (self.applies)(dialect) && is_recent
    }

    /// The module of the scenario, which is its section in the table.
    #[must_use]
    pub fn area(&self) -> &'static str {
        self.area
    }

    /// The name of the function as a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        self.name.replace('_', " ")
    }

    /// The area and the name.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}::{}", self.area, self.name)
    }

    /// The ids of the behaviours that it covers.
    #[must_use]
    pub fn covers(&self) -> &'static [&'static str] {
        self.covers
    }

    pub(crate) async fn run(&self, env: ScenarioEnv) {
        (self.run)(env).await;
    }
}
