//! The examination of a server at a URL in the legacy revisions: handshakes and sessions.

use bowline::exchange::{Dialect, Dialects};
use serde_json::{Value, json};

use super::Settings;
use super::checks::era::Heard;
use super::checks::legacy;
use super::examine::examine_server;
use super::legacy_codes;
use super::probe::http::{Endpoint, HttpLink, Observed, Outgoing};
use super::probe::legacy::{HANDSHAKE_ID, Handshake, SessionFacts, end_session, examine_session};
use super::probe::stream::examine_get_stream;
use super::probe::{Link, Request, Way};
use super::report::Report;
use super::run_http::{heard, report_stream};

/// The handshakes with a server, and the session of the first one that succeeded.
#[derive(Debug)]
pub(crate) struct LegacySide {
    handshakes: Vec<Handshake>,
    /// The index of the handshake whose session is used.
    main: Option<usize>,
    session: SessionFacts,
}

impl LegacySide {
    /// Performs the handshake in each version. All sessions but one are ended at once.
    pub(crate) async fn open(
        endpoint: &Endpoint,
        versions: Dialects,
        observed: &mut Vec<Observed>,
    ) -> Self {
        let mut side = Self {
            handshakes: Vec::new(),
            main: None,
            session: SessionFacts::default(),
        };
        for dialect in versions.iter() {
            let handshake = Handshake::perform(endpoint, dialect).await;
            observed.push(Observed {
                method: "initialize".to_owned(),
                outcome: handshake.outcome.clone(),
            });
            let has_failed = handshake.outcome.is_err();
            let is_open = handshake.dialect().is_some_and(|it| !it.is_modern());
            if is_open && side.main.is_none() {
                side.main = Some(side.handshakes.len());
                side.session = examine_session(endpoint, &handshake).await;
            } else {
                let _ = end_session(endpoint, &handshake).await;
            }
            side.handshakes.push(handshake);
            if has_failed {
                break; // each further one would wait as long
            }
        }
        side
    }

    pub(crate) fn heard(&self) -> Vec<(&'static Dialect, Heard)> {
        let heard = |it: &Handshake| (it.offered, heard(&it.outcome, HANDSHAKE_ID));
        self.handshakes.iter().map(heard).collect()
    }

    /// Returns whether a handshake got any answer.
    pub(crate) fn is_answered(&self) -> bool {
        self.handshakes.iter().any(|it| it.outcome.is_ok())
    }

    fn main(&self) -> Option<&Handshake> {
        self.handshakes.get(self.main?)
    }

    fn link<'a>(&self, endpoint: &'a Endpoint) -> HttpLink<'a> {
        let main = self.main();
        HttpLink {
            endpoint,
            dialect: main
                .and_then(Handshake::dialect)
                .unwrap_or(Dialect::LATEST_LEGACY),
            state_headers: main.map(Handshake::state_headers).unwrap_or_default(),
            last_id: FIRST_ID,
            observed: Vec::new(),
        }
    }

    /// Examines what the server offers, in the main session.
    pub(crate) async fn examine(
        &self,
        endpoint: &Endpoint,
        settings: &Settings,
        report: &mut Report,
    ) -> Vec<Observed> {
        let Some(introduction) = self.main().and_then(Handshake::result) else {
            report.unchecked("everything else", "the server could not be opened");
            return Vec::new();
        };
        if self.is_session_lost() {
            report.unchecked(
                "what the server offers",
                "its sessions are lost between requests",
            );
            return Vec::new();
        }
        let mut link = Link::new(Way::Http(self.link(endpoint)));
        examine_server(&mut link, &introduction, settings, report).await;
        let Way::Http(link) = link.way else {
            return Vec::new();
        };
        let facts = examine_get_stream(&link).await;
        report_stream(&facts, false, report);
        link.observed
    }

    fn is_session_lost(&self) -> bool {
        let findings = legacy::session(&self.session);
        findings
            .iter()
            .any(|it| it.code == &legacy_codes::SESSION_LOST)
    }

    /// A request that changes nothing, and that a server without sessions answers.
    pub(crate) fn harmless_request(&self) -> Outgoing {
        self.request(FIRST_ID, "ping", json!({}))
    }

    /// A request in the main session.
    pub(crate) fn request(&self, id: u64, method: &str, params: Value) -> Outgoing {
        let main = self.main();
        let dialect = main
            .and_then(Handshake::dialect)
            .unwrap_or(Dialect::LATEST_LEGACY);
        let mut outgoing = Outgoing::post(&Request::new(id, dialect, method, params));
        outgoing
            .headers
            .extend(main.map(Handshake::state_headers).unwrap_or_default());
        outgoing
    }

    /// Ends the main session, and reports what was seen of it.
    pub(crate) async fn close(&mut self, endpoint: &Endpoint, report: &mut Report) {
        let Some(main) = self.main().cloned() else {
            return;
        };
        self.session.ended = end_session(endpoint, &main).await;
        report.findings.extend(legacy::session(&self.session));
        report.fact(
            "sessions",
            match self.session.id {
                Some(_) => "issued by the server",
                None => "none",
            },
        );
    }
}

/// The ids of requests after those of the session's examination.
const FIRST_ID: u64 = 20;
