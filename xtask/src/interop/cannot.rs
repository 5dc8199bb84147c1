//! What peers are known not to do: one `peer, side, check: reason` to a line, and comments. With `helped`
//! as a fourth word, the check passes because our program for that peer does what the peer does not.

use super::cell::{CHECKS, Cell, Side, Verdict};

/// The checks that a peer need not pass.
#[derive(Debug, Default)]
pub(crate) struct Cannot {
    lines: Vec<Line>,
}

/// Something that a peer does not do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) peer: String,
    pub(crate) side: String,
    pub(crate) check: String,
    pub(crate) is_helped: bool,
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
    pub(crate) fn names(&self, peer: &str, side: Side, check: &str) -> bool {
        let line = self.line(peer, side, check);
        line.is_some_and(|line| !line.is_helped)
    }

    /// Whether the peer passes this check with help.
    pub(crate) fn helps(&self, peer: &str, side: Side, check: &str) -> bool {
        let line = self.line(peer, side, check);
        line.is_some_and(|line| line.is_helped)
    }

    fn line(&self, peer: &str, side: Side, check: &str) -> Option<&Line> {
        let mut lines = self.lines.iter();
        lines.find(|line| line.is_about(peer, side) && line.check == check)
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
                let mut verdicts = CHECKS.iter().zip(&cell.verdicts);
                line.is_about(cell.peer, cell.side)
                    && verdicts.any(|(check, it)| *check == line.check && *it == expected)
            })
        };
        self.lines.iter().filter(|line| !is_seen(line)).collect()
    }
}

impl Line {
    fn parse(line: &str) -> Result<Self, String> {
        let (what, why) = line.split_once(": ").unwrap_or((line, ""));
        let (peer, side, check, is_helped) = match what.split(", ").collect::<Vec<_>>()[..] {
            [peer, side, check] if !why.is_empty() => (peer, side, check, false),
            [peer, side, check, "helped"] if !why.is_empty() => (peer, side, check, true),
            _ => return Err(format!("`{line}` is not `peer, side, check: reason`")),
        };
        Ok(Self {
            peer: peer.to_owned(),
            side: side.to_owned(),
            check: check.to_owned(),
            is_helped,
            why: why.to_owned(),
        })
    }

    fn is_about(&self, peer: &str, side: Side) -> bool {
        self.peer == peer && self.side == side.name()
    }
}

#[cfg(test)]
mod tests {
    use super::super::cell::Transport;
    use super::*;

    fn cell(verdict: Verdict) -> Cell {
        Cell {
            peer: "python 1",
            side: Side::Server,
            transport: Transport::Http,
            mode: "legacy".to_owned(),
            version: String::new(),
            verdicts: vec![verdict],
        }
    }

    #[test]
    fn a_line_is_about_one_check_of_one_side_of_one_peer() {
        let cannot = Cannot::parse("# why\n\npython 1, server, open: it is shut\n").unwrap();

        assert!(cannot.names("python 1", Side::Server, "open"));
        assert!(!cannot.names("python 1", Side::Client, "open"));
        assert!(!cannot.names("python 2", Side::Server, "open"));
        assert!(!cannot.names("python 1", Side::Server, "close"));
    }

    #[test]
    fn a_check_that_passes_with_help_is_not_one_that_fails() {
        let cannot = Cannot::parse("python 1, server, open, helped: it is shut").unwrap();

        assert!(!cannot.names("python 1", Side::Server, "open"));
        assert!(cannot.helps("python 1", Side::Server, "open"));
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
