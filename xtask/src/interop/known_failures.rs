//! The known failures of peers: `peer, side, check: reason` lines and comments. With the additional word `helped`, the
//! check passes because our program for that peer works around the failure. With the name of a transport, or of an era,
//! the line applies to that transport or era only.

use super::cell::{Cell, CheckResult, Side, Transport};

/// The checks that peers are known to fail.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownFailures {
    lines: Vec<KnownFailure>,
}

/// One line: a check that a peer is known to fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownFailure {
    pub(crate) peer: String,
    pub(crate) side: String,
    pub(crate) check: String,
    pub(crate) is_helped: bool,
    /// The only transport that the line applies to; all if `None`.
    pub(crate) transport: Option<Transport>,
    /// The only era that the line applies to, `2026` or `legacy`; both if `None`.
    pub(crate) era: Option<&'static str>,
    pub(crate) why: String,
}

/// What identifies a cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellKey<'a> {
    pub(crate) peer: &'a str,
    pub(crate) side: Side,
    pub(crate) transport: Transport,
    pub(crate) mode: &'a str,
}

impl CellKey<'_> {
    /// Returns the era of the peer, `2026` or `legacy`.
    fn era_of_peer(&self) -> &'static str {
        // With a bridge, the client and the server have a mode each.
        let of_peer = match (self.mode.split_once(" → "), self.side) {
            (Some((client, _)), Side::Client) => client,
            (Some((_, server)), Side::Server) => server,
            (None, _) => self.mode,
        };
        match of_peer {
            "2026" => "2026",
            "auto" if self.transport != Transport::HttpSse => "2026",
            _ => "legacy",
        }
    }
}

impl KnownFailures {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let lines = lines.map(KnownFailure::parse).collect::<Result<_, _>>()?;
        Ok(Self { lines })
    }

    /// Returns whether this check is known to fail in this cell.
    pub(crate) fn names(&self, cell: CellKey<'_>, check: &str) -> bool {
        let line = self.line(cell, check);
        line.is_some_and(|line| !line.is_helped)
    }

    /// Returns whether this check passes because our program works around a failure.
    pub(crate) fn helps(&self, cell: CellKey<'_>, check: &str) -> bool {
        let line = self.line(cell, check);
        line.is_some_and(|line| line.is_helped)
    }

    /// Returns whether the reason of a line says that our program helps in this way.
    pub(crate) fn lists_help(&self, cell: CellKey<'_>, check: &str, how: &str) -> bool {
        let mut lines = self.lines.iter().filter(|line| line.is_helped);
        lines.any(|line| line.is_about(cell) && line.check == check && line.why.contains(how))
    }

    fn line(&self, cell: CellKey<'_>, check: &str) -> Option<&KnownFailure> {
        let mut lines = self.lines.iter();
        lines.find(|line| line.is_about(cell) && line.check == check)
    }

    /// Returns the lines about these checks, and those about others.
    pub(crate) fn split(&self, checks: &[&str]) -> (Self, Self) {
        let lines = self.lines.iter().cloned();
        let (of, others) = lines.partition(|line| checks.contains(&line.check.as_str()));
        (Self { lines: of }, Self { lines: others })
    }

    /// Returns the lines about these peers.
    pub(crate) fn about(&self, peers: &[&str]) -> Self {
        let lines = self.lines.iter();
        let lines = lines.filter(|line| peers.contains(&line.peer.as_str()));
        Self {
            lines: lines.cloned().collect(),
        }
    }

    /// Returns the lines about other peers.
    pub(crate) fn about_others(&self, peers: &[&str]) -> Vec<&KnownFailure> {
        let lines = self.lines.iter();
        let lines = lines.filter(|line| !peers.contains(&line.peer.as_str()));
        lines.collect()
    }

    pub(crate) fn lines(&self) -> &[KnownFailure] {
        &self.lines
    }

    /// Returns the lines that no cell confirms.
    pub(crate) fn unused<'a>(&'a self, cells: &[Cell]) -> Vec<&'a KnownFailure> {
        let is_confirmed = |line: &KnownFailure| {
            cells.iter().any(|cell| {
                let expected = match line.is_helped {
                    true => CheckResult::Ok,
                    false => CheckResult::KnownFailure,
                };
                line.is_about(cell.key())
                    && (cell.checks()).any(|(check, it)| check == line.check && *it == expected)
            })
        };
        self.lines
            .iter()
            .filter(|line| !is_confirmed(line))
            .collect()
    }
}

impl KnownFailure {
    fn parse(line: &str) -> Result<Self, String> {
        let (what, why) = line.split_once(": ").unwrap_or((line, ""));
        let error = || format!("`{line}` is not `peer, side, check: reason`");
        let words: Vec<&str> = what.split(", ").collect();
        let [peer, side, check, options @ ..] = &words[..] else {
            return Err(error());
        };
        let (mut is_helped, mut transport, mut era) = (false, None, None);
        for &option in options {
            match option {
                "helped" => is_helped = true,
                "2026" => era = Some("2026"),
                "legacy" => era = Some("legacy"),
                name => transport = Some(Transport::named(name).ok_or_else(error)?),
            }
        }
        if why.is_empty() {
            return Err(error());
        }
        Ok(Self {
            peer: (*peer).to_owned(),
            side: (*side).to_owned(),
            check: (*check).to_owned(),
            is_helped,
            transport,
            era,
            why: why.to_owned(),
        })
    }

    fn is_about(&self, cell: CellKey<'_>) -> bool {
        let is_over = self.transport.is_none_or(|only| only == cell.transport);
        let is_in = self.era.is_none_or(|only| only == cell.era_of_peer());
        self.peer == cell.peer && self.side == cell.side.name() && is_over && is_in
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(result: CheckResult) -> Cell {
        Cell {
            peer: "python 1",
            side: Side::Server,
            transport: Transport::Http,
            mode: "legacy".to_owned(),
            version: String::new(),
            checks: &["open"],
            results: vec![result],
        }
    }

    fn key(peer: &str, side: Side, transport: Transport) -> CellKey<'_> {
        CellKey {
            peer,
            side,
            transport,
            mode: "legacy",
        }
    }

    #[test]
    fn a_line_applies_to_one_check_of_one_side_of_one_peer() {
        let known_failures =
            KnownFailures::parse("# why\n\npython 1, server, open: refused\n").unwrap();

        let names =
            |peer, side, check| known_failures.names(key(peer, side, Transport::Http), check);
        assert!(names("python 1", Side::Server, "open"));
        assert!(!names("python 1", Side::Client, "open"));
        assert!(!names("python 2", Side::Server, "open"));
        assert!(!names("python 1", Side::Server, "close"));
    }

    #[test]
    fn a_line_may_apply_to_one_transport_only() {
        let known_failures =
            KnownFailures::parse("python 1, server, open, http+sse: refused").unwrap();

        let names = |over| known_failures.names(key("python 1", Side::Server, over), "open");
        assert!(names(Transport::HttpSse));
        assert!(!names(Transport::Http));
        assert_eq!(
            known_failures
                .unused(&[cell(CheckResult::KnownFailure)])
                .len(),
            1
        );
        assert!(KnownFailures::parse("python 1, server, open, unknown: refused").is_err());
    }

    #[test]
    fn a_check_may_be_helped_over_one_transport_only() {
        let known_failures =
            KnownFailures::parse("python 1, server, open, helped, http: refused").unwrap();

        let helps = |over| known_failures.helps(key("python 1", Side::Server, over), "open");
        assert!(helps(Transport::Http));
        assert!(!helps(Transport::Stdio));
    }

    #[test]
    fn a_line_may_apply_to_one_era_only() {
        let known_failures = KnownFailures::parse("python 1, server, open, 2026: refused").unwrap();

        let names = |mode| {
            let mut key = key("python 1", Side::Server, Transport::Http);
            key.mode = mode;
            known_failures.names(key, "open")
        };
        assert!(names("2026") && names("auto"));
        assert!(!names("legacy") && !names("legacy:2025-06-18"));
        assert!(names("legacy → 2026") && !names("2026 → legacy"));
    }

    #[test]
    fn lines_are_selected_by_check() {
        let known_failures =
            KnownFailures::parse("rmcp, server, open: refused\nrmcp, server, list: too long")
                .unwrap();

        let (of, others) = known_failures.split(&["list"]);

        assert_eq!(of.lines()[0].check, "list");
        assert_eq!(others.lines()[0].check, "open");
    }

    #[test]
    fn lines_are_selected_by_peer() {
        let known_failures =
            KnownFailures::parse("python 1, server, open: refused\nrmcp, client, list: too long")
                .unwrap();

        assert_eq!(known_failures.about(&["rmcp"]).lines().len(), 1);
        assert_eq!(known_failures.about(&["rmcp", "python 1"]).lines().len(), 2);
        assert_eq!(known_failures.about_others(&["rmcp"])[0].peer, "python 1");
    }

    #[test]
    fn a_helped_check_is_not_a_failing_check() {
        let known_failures =
            KnownFailures::parse("python 1, server, open, helped: refused").unwrap();

        let key = key("python 1", Side::Server, Transport::Http);
        assert!(!known_failures.names(key, "open"));
        assert!(known_failures.helps(key, "open"));
        assert!(known_failures.unused(&[cell(CheckResult::Ok)]).is_empty());
        assert_eq!(
            known_failures
                .unused(&[cell(CheckResult::KnownFailure)])
                .len(),
            1
        );
    }

    #[test]
    fn help_is_listed_if_the_reason_of_its_check_names_it() {
        let known_failures = KnownFailures::parse(
            "python 1, server, log, helped: no levels, so our program filters\n\
             python 1, server, log, helped, http: lost, so our program calls again",
        );

        let lists = |transport| {
            let key = key("python 1", Side::Server, transport);
            let known_failures = known_failures.as_ref().unwrap();
            known_failures.lists_help(key, "log", "calls again")
        };
        assert!(lists(Transport::Http));
        assert!(!lists(Transport::Stdio));
    }

    #[test]
    fn a_line_needs_a_reason() {
        assert!(KnownFailures::parse("python 1, server, open").is_err());
        assert!(KnownFailures::parse("python 1, open: refused").is_err());
    }

    #[test]
    fn a_line_that_no_cell_confirms_is_unused() {
        let known_failures = KnownFailures::parse("python 1, server, open: refused").unwrap();

        assert!(
            known_failures
                .unused(&[cell(CheckResult::KnownFailure)])
                .is_empty()
        );
        assert_eq!(known_failures.unused(&[cell(CheckResult::Ok)]).len(), 1);
    }
}
