//! The known failures of peers: `peer, side, check: reason` lines and comments. With the additional word `helped`, the
//! check passes because our program for that peer works around the failure. With the name of a transport, the line
//! applies to that transport only.

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
    pub(crate) why: String,
}

impl KnownFailures {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let lines = lines.map(KnownFailure::parse).collect::<Result<_, _>>()?;
        Ok(Self { lines })
    }

    /// Returns whether the peer is known to fail this check.
    pub(crate) fn names(&self, peer: &str, side: Side, over: Transport, check: &str) -> bool {
        let line = self.line(peer, side, over, check);
        line.is_some_and(|line| !line.is_helped)
    }

    /// Returns whether the peer passes this check because our program works around a failure.
    pub(crate) fn helps(&self, peer: &str, side: Side, over: Transport, check: &str) -> bool {
        let line = self.line(peer, side, over, check);
        line.is_some_and(|line| line.is_helped)
    }

    fn line(&self, peer: &str, side: Side, over: Transport, check: &str) -> Option<&KnownFailure> {
        let mut lines = self.lines.iter();
        lines.find(|line| line.is_about(peer, side, over) && line.check == check)
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
                line.is_about(cell.peer, cell.side, cell.transport)
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
        let (mut is_helped, mut transport) = (false, None);
        for &option in options {
            match option {
                "helped" => is_helped = true,
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
            why: why.to_owned(),
        })
    }

    fn is_about(&self, peer: &str, side: Side, over: Transport) -> bool {
        let is_over = self.transport.is_none_or(|only| only == over);
        self.peer == peer && self.side == side.name() && is_over
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

    #[test]
    fn a_line_applies_to_one_check_of_one_side_of_one_peer() {
        let known_failures =
            KnownFailures::parse("# why\n\npython 1, server, open: refused\n").unwrap();

        let names = |peer, side, check| known_failures.names(peer, side, Transport::Http, check);
        assert!(names("python 1", Side::Server, "open"));
        assert!(!names("python 1", Side::Client, "open"));
        assert!(!names("python 2", Side::Server, "open"));
        assert!(!names("python 1", Side::Server, "close"));
    }

    #[test]
    fn a_line_may_apply_to_one_transport_only() {
        let known_failures =
            KnownFailures::parse("python 1, server, open, http+sse: refused").unwrap();

        assert!(known_failures.names("python 1", Side::Server, Transport::HttpSse, "open"));
        assert!(!known_failures.names("python 1", Side::Server, Transport::Http, "open"));
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

        let helps = |over| known_failures.helps("python 1", Side::Server, over, "open");
        assert!(helps(Transport::Http));
        assert!(!helps(Transport::Stdio));
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

        assert!(!known_failures.names("python 1", Side::Server, Transport::Http, "open"));
        assert!(known_failures.helps("python 1", Side::Server, Transport::Http, "open"));
        assert!(known_failures.unused(&[cell(CheckResult::Ok)]).is_empty());
        assert_eq!(
            known_failures
                .unused(&[cell(CheckResult::KnownFailure)])
                .len(),
            1
        );
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
