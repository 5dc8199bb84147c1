//! What peers are known not to do: one `peer, side, check: reason` to a line, and comments. With `helped`
//! as a fourth word, the check passes because our program for that peer does what the peer does not. With the
//! name of a transport as a fourth word, the line is about that one only.

use super::cell::{Cell, Side, Transport, Verdict};

/// The checks that a peer need not pass.
#[derive(Debug, Default)]
pub(crate) struct Cannot {
    lines: Vec<Line>,
}

/// Something that a peer does not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) peer: String,
    pub(crate) side: String,
    pub(crate) check: String,
    pub(crate) is_helped: bool,
    /// The only transport that it is about.
    pub(crate) transport: Option<Transport>,
    pub(crate) why: String,
}

impl Cannot {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let lines = lines.map(Line::parse).collect::<Result<_, _>>()?;
        Ok(Self { lines })
    }

    /// Whether the peer fails this check.
    pub(crate) fn names(&self, peer: &str, side: Side, over: Transport, check: &str) -> bool {
        let line = self.line(peer, side, over, check);
        line.is_some_and(|line| !line.is_helped)
    }

    /// Whether the peer passes this check with help.
    pub(crate) fn helps(&self, peer: &str, side: Side, over: Transport, check: &str) -> bool {
        let line = self.line(peer, side, over, check);
        line.is_some_and(|line| line.is_helped)
    }

    fn line(&self, peer: &str, side: Side, over: Transport, check: &str) -> Option<&Line> {
        let mut lines = self.lines.iter();
        lines.find(|line| line.is_about(peer, side, over) && line.check == check)
    }

    /// The lines about these peers.
    pub(crate) fn about(&self, peers: &[&str]) -> Self {
        let lines = self.lines.iter();
        let lines = lines.filter(|line| peers.contains(&line.peer.as_str()));
        Self {
            lines: lines.cloned().collect(),
        }
    }

    /// The lines about none of these peers.
    pub(crate) fn about_others(&self, peers: &[&str]) -> Vec<&Line> {
        let lines = self.lines.iter();
        let lines = lines.filter(|line| !peers.contains(&line.peer.as_str()));
        lines.collect()
    }

    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The lines that no cell bears out.
    pub(crate) fn unused<'a>(&'a self, cells: &[Cell]) -> Vec<&'a Line> {
        let is_seen = |line: &Line| {
            cells.iter().any(|cell| {
                let expected = match line.is_helped {
                    true => Verdict::Ok,
                    false => Verdict::Cannot,
                };
                line.is_about(cell.peer, cell.side, cell.transport)
                    && (cell.checks()).any(|(check, it)| check == line.check && *it == expected)
            })
        };
        self.lines.iter().filter(|line| !is_seen(line)).collect()
    }
}

impl Line {
    fn parse(line: &str) -> Result<Self, String> {
        let (what, why) = line.split_once(": ").unwrap_or((line, ""));
        let complaint = || format!("`{line}` is not `peer, side, check: reason`");
        let (peer, side, check, fourth) = match what.split(", ").collect::<Vec<_>>()[..] {
            [peer, side, check] => (peer, side, check, None),
            [peer, side, check, fourth] => (peer, side, check, Some(fourth)),
            _ => return Err(complaint()),
        };
        let (is_helped, transport) = match fourth {
            None => (false, None),
            Some("helped") => (true, None),
            Some(name) => (false, Some(Transport::named(name).ok_or_else(complaint)?)),
        };
        if why.is_empty() {
            return Err(complaint());
        }
        Ok(Self {
            peer: peer.to_owned(),
            side: side.to_owned(),
            check: check.to_owned(),
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

    fn cell(verdict: Verdict) -> Cell {
        Cell {
            peer: "python 1",
            side: Side::Server,
            transport: Transport::Http,
            mode: "legacy".to_owned(),
            version: String::new(),
            checks: &["open"],
            verdicts: vec![verdict],
        }
    }

    #[test]
    fn a_line_is_about_one_check_of_one_side_of_one_peer() {
        let cannot = Cannot::parse("# why\n\npython 1, server, open: it is shut\n").unwrap();

        let names = |peer, side, check| cannot.names(peer, side, Transport::Http, check);
        assert!(names("python 1", Side::Server, "open"));
        assert!(!names("python 1", Side::Client, "open"));
        assert!(!names("python 2", Side::Server, "open"));
        assert!(!names("python 1", Side::Server, "close"));
    }

    #[test]
    fn a_line_may_be_about_one_transport_only() {
        let cannot = Cannot::parse("python 1, server, open, http+sse: it is shut").unwrap();

        assert!(cannot.names("python 1", Side::Server, Transport::HttpSse, "open"));
        assert!(!cannot.names("python 1", Side::Server, Transport::Http, "open"));
        assert_eq!(cannot.unused(&[cell(Verdict::Cannot)]).len(), 1);
        assert!(Cannot::parse("python 1, server, open, pigeon: it is shut").is_err());
    }

    #[test]
    fn a_run_of_some_peers_has_to_do_with_their_lines_only() {
        let cannot =
            Cannot::parse("python 1, server, open: shut\nrmcp, client, list: long").unwrap();

        assert_eq!(cannot.about(&["rmcp"]).lines().len(), 1);
        assert_eq!(cannot.about(&["rmcp", "python 1"]).lines().len(), 2);
        assert_eq!(cannot.about_others(&["rmcp"])[0].peer, "python 1");
    }

    #[test]
    fn a_check_that_passes_with_help_is_not_one_that_fails() {
        let cannot = Cannot::parse("python 1, server, open, helped: it is shut").unwrap();

        assert!(!cannot.names("python 1", Side::Server, Transport::Http, "open"));
        assert!(cannot.helps("python 1", Side::Server, Transport::Http, "open"));
        assert!(cannot.unused(&[cell(Verdict::Ok)]).is_empty());
        assert_eq!(cannot.unused(&[cell(Verdict::Cannot)]).len(), 1);
    }

    #[test]
    fn a_line_needs_a_reason() {
        assert!(Cannot::parse("python 1, server, open").is_err());
        assert!(Cannot::parse("python 1, open: it is shut").is_err());
    }

    #[test]
    fn a_line_that_nothing_bears_out_is_out_of_date() {
        let cannot = Cannot::parse("python 1, server, open: it is shut").unwrap();

        assert!(cannot.unused(&[cell(Verdict::Cannot)]).is_empty());
        assert_eq!(cannot.unused(&[cell(Verdict::Ok)]).len(), 1);
    }
}
