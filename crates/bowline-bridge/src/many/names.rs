//! [`Names`]: the names of tools and prompts of several servers, as clients see them.

use std::borrow::Cow;

use thiserror::Error;

use crate::config::shortened;

/// The prefixes of servers, which make the names of their tools and prompts unique.
///
/// A client sees the tool `read` of the server `files` as `files__read`: the prefix, a separator, the name.
///
/// **Finding the server** needs no list, only the name, so a call reaches its server on any replica and after a restart.
/// No prefix with its separator is the beginning of another one; [`Names::new`] refuses those. This is why the separator
/// is `__` by default: names of servers and tools often contain `_`, and with that as separator `git` and `git_hub` could
/// not be used together, since `git_hub_log` could be meant for both. Hosts and model APIs accept letters, digits, `_` and
/// `-` everywhere; a `.` or `/` only some of them.
///
/// **The default prefix** is the name of the server, with every other character than letters, digits, `_`, `-` and `.`
/// replaced by `_`, and without the separator in it. A bridge with one server has no prefix by default. One of several
/// servers may have the prefix `""`.
///
/// **Names that are refused** are not listed, and reported instead: those longer than 128 characters with their prefix,
/// and names of the server without prefix that begin like those of another. Otherwise the names of a server are not
/// checked: they are as valid as they are without the bridge.
///
/// **Resources** keep their URIs, see [`UriRoutes`](super::UriRoutes).
///
/// # Examples
///
/// ```
/// use bowline_bridge::many::Names;
///
/// let names = Names::new("__", [("files", Some("fs")), ("git hub", None)])?;
/// assert_eq!(names.outer("files", "read")?, "fs__read");
/// assert_eq!(names.outer("git hub", "log")?, "git_hub__log");
/// assert_eq!(names.split("git_hub__log"), Some(("git hub", "log")));
/// assert_eq!(names.split("log"), None);
///
/// let overlapping = Names::new("_", [("git", None), ("git_hub", None)]);
/// assert!(overlapping.is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// In the order in which lists are merged.
    servers: Vec<ServerPrefix>,
    separator: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ServerPrefix {
    server: String,
    /// With its separator; empty if the server has no prefix.
    prefix: String,
}

/// Prefixes that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct InvalidPrefix {
    server: String,
    problem: String,
}

/// A name that cannot be offered to clients.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameRefused {
    /// The name is too long with its prefix.
    #[error(
        "`{name}` exceeds 128 characters with the prefix `{prefix}`; choose a shorter `prefix` for `{server}`"
    )]
    TooLong {
        /// The server.
        server: String,
        /// Its prefix, with the separator.
        prefix: String,
        /// The name, shortened.
        name: String,
    },
    /// The name of a server without prefix begins with the prefix of another.
    #[error(
        "`{name}` of `{server}` begins like the names of `{other}`; choose a `prefix` for `{server}`"
    )]
    Ambiguous {
        /// The server without prefix.
        server: String,
        /// The server whose prefix it begins with.
        other: String,
        /// The name, shortened.
        name: String,
    },
    /// There is no such server.
    #[error("unknown server `{server}`")]
    UnknownServer {
        /// The server.
        server: String,
    },
}

impl Names {
    /// Creates the prefixes of servers; `None` for the default. Lists are merged in this order.
    ///
    /// # Errors
    ///
    /// If prefixes are invalid, or names could belong to two servers.
    pub fn new<'a>(
        separator: &str,
        servers: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    ) -> Result<Self, InvalidPrefix> {
        let servers: Vec<_> = servers.into_iter().collect();
        let is_alone = servers.len() == 1;
        let mut names = Self {
            servers: Vec::with_capacity(servers.len()),
            separator: separator.to_owned(),
        };
        for (server, prefix) in servers {
            let prefix = match prefix {
                Some(prefix) => checked_prefix(server, prefix)?,
                None if is_alone => String::new(),
                None => default_prefix(server, separator)?,
            };
            names.add(server, prefix)?;
        }
        Ok(names)
    }

    /// Returns the servers, in the order in which lists are merged.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.servers.iter().map(|server| server.server.as_str())
    }

    /// Returns the prefix of a server with the separator; an empty text if it has none.
    #[must_use]
    pub fn prefix_of(&self, server: &str) -> Option<&str> {
        let found = self.servers.iter().find(|it| it.server == server);
        found.map(|found| found.prefix.as_str())
    }

    /// Returns the name that clients see for a name of a server.
    ///
    /// # Errors
    ///
    /// If the name cannot be offered.
    pub fn outer<'n>(&self, server: &str, name: &'n str) -> Result<Cow<'n, str>, NameRefused> {
        let Some(prefix) = self.prefix_of(server) else {
            return Err(NameRefused::UnknownServer {
                server: server.to_owned(),
            });
        };
        if prefix.is_empty() {
            return match self.prefixed(name) {
                None => Ok(Cow::Borrowed(name)),
                Some(other) => Err(NameRefused::Ambiguous {
                    server: server.to_owned(),
                    other: other.server.clone(),
                    name: shortened(name),
                }),
            };
        }
        if prefix.len() + name.chars().count() > MAX_NAME {
            return Err(NameRefused::TooLong {
                server: server.to_owned(),
                prefix: prefix.to_owned(),
                name: shortened(name),
            });
        }
        Ok(Cow::Owned(format!("{prefix}{name}")))
    }

    /// Returns the server that a name belongs to, and its name there.
    #[must_use]
    pub fn split<'n>(&self, outer: &'n str) -> Option<(&str, &'n str)> {
        let without_prefix = || self.servers.iter().find(|it| it.prefix.is_empty());
        let found = self.prefixed(outer).or_else(without_prefix)?;
        let name = &outer[found.prefix.len()..];
        Some((&found.server, name))
    }

    /// Returns a number that differs if servers, prefixes or their order do. It is the same on all replicas.
    #[must_use]
    pub fn generation(&self) -> u64 {
        let servers = self.servers.iter();
        let texts = servers.flat_map(|it| [it.server.as_str(), it.prefix.as_str()]);
        // FNV-1a: it must not depend on the build or the process, and nothing secret depends on it.
        texts
            .flat_map(|text| text.bytes().chain([0xFF]))
            .fold(FNV_OFFSET, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME)
            })
    }

    fn prefixed(&self, outer: &str) -> Option<&ServerPrefix> {
        let is_prefix = |it: &&ServerPrefix| !it.prefix.is_empty() && outer.starts_with(&it.prefix);
        self.servers.iter().find(is_prefix)
    }

    fn add(&mut self, server: &str, prefix: String) -> Result<(), InvalidPrefix> {
        let added = ServerPrefix {
            server: server.to_owned(),
            prefix: match prefix.as_str() {
                "" => prefix,
                prefix => format!("{prefix}{}", self.separator),
            },
        };
        for other in &self.servers {
            let problem = if other.prefix == added.prefix && prefix_is_empty(&added) {
                format!(
                    "`{}` has no prefix either; at most one server may have none",
                    other.server
                )
            } else if other.prefix == added.prefix {
                let (prefix, other) = (&added.prefix, &other.server);
                format!("names begin with `{prefix}`, as those of `{other}` do; set another prefix")
            } else if overlap(&other.prefix, &added.prefix) {
                format!(
                    "a name that begins with `{}` could belong to `{}` too, whose names begin with `{}`; set another \
                     prefix, or another `bridge.separator`",
                    added.prefix, other.server, other.prefix
                )
            } else {
                continue;
            };
            return Err(InvalidPrefix::new(server, problem));
        }
        self.servers.push(added);
        Ok(())
    }
}

impl InvalidPrefix {
    fn new(server: &str, problem: impl Into<String>) -> Self {
        Self {
            server: server.to_owned(),
            problem: problem.into(),
        }
    }

    /// Returns the server whose prefix is at fault.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }
}

fn prefix_is_empty(server: &ServerPrefix) -> bool {
    server.prefix.is_empty()
}

fn overlap(a: &str, b: &str) -> bool {
    !a.is_empty() && !b.is_empty() && (a.starts_with(b) || b.starts_with(a))
}

fn checked_prefix(server: &str, prefix: &str) -> Result<String, InvalidPrefix> {
    if let Some(wrong) = prefix.chars().find(|it| !is_name_char(*it)) {
        let wrong = wrong.escape_debug();
        let problem = format!("expected letters, digits, `_`, `-` and `.`, got `{wrong}`");
        return Err(InvalidPrefix::new(server, problem));
    }
    if prefix.len() > MAX_PREFIX {
        let problem = format!("prefix exceeds {MAX_PREFIX} characters; set a shorter one");
        return Err(InvalidPrefix::new(server, problem));
    }
    Ok(prefix.to_owned())
}

fn default_prefix(server: &str, separator: &str) -> Result<String, InvalidPrefix> {
    let valid = |letter: char| if is_name_char(letter) { letter } else { '_' };
    let mut prefix: String = server.chars().map(valid).collect();
    // With `_` as separator nothing would remain of `git_hub`; an overlap is found later.
    if separator.len() > 1 {
        let first = &separator[..1];
        while prefix.contains(separator) {
            prefix = prefix.replace(separator, first);
        }
        prefix.truncate(prefix.trim_end_matches(first).len());
    }
    if !prefix.bytes().any(|byte| byte.is_ascii_alphanumeric()) {
        let problem = "the name of the server has no letters or digits for a prefix; set one";
        return Err(InvalidPrefix::new(server, problem));
    }
    checked_prefix(server, &prefix)
}

fn is_name_char(letter: char) -> bool {
    u8::try_from(letter).is_ok_and(is_name_byte)
}

/// Returns whether the specification allows a byte in the name of a tool.
pub(crate) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// The specification's limit for the name of a tool.
const MAX_NAME: usize = 128;
/// Leaves half for the name.
const MAX_PREFIX: usize = 60;

const FNV_OFFSET: u64 = 0xCBF2_9CE4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01B3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_random::SplitMix64;

    fn problem(separator: &str, servers: &[(&str, Option<&str>)]) -> String {
        Names::new(separator, servers.iter().copied())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_single_server_has_no_prefix() {
        let names = Names::new("__", [("files", None)]).unwrap();

        assert_eq!(names.outer("files", "read").unwrap(), "read");
        assert_eq!(names.split("files__read"), Some(("files", "files__read")));
    }

    #[test]
    fn default_prefixes_never_overlap() {
        let servers = ["a", "a_", "a__b", "a_b_c", "a b/c d", "ä_x"];
        for one in servers {
            for other in servers.iter().filter(|other| **other != one) {
                let names = Names::new("__", [(one, None), (*other, None)]);
                let equal = default_prefix(one, "__") == default_prefix(other, "__");
                assert_eq!(names.is_err(), equal, "{one} {other}");
            }
        }
    }

    #[test]
    fn prefixes_that_cannot_be_told_apart_are_refused() {
        assert!(
            problem("__", &[("a", Some("x")), ("b", Some("x"))]).contains("as those of `a` do")
        );
        assert!(
            problem("_", &[("git", None), ("git_hub", None)]).contains("could belong to `git`")
        );
        assert!(problem("__", &[("a", Some("")), ("b", Some(""))]).contains("at most one server"));
        assert!(problem("__", &[("a", Some("x/y")), ("b", None)]).contains("got `/`"));
        assert!(problem("__", &[("a", None), ("日本", None)]).contains("no letters"));
        assert!(problem("__", &[("a", None), (&"b".repeat(61), None)]).contains("exceeds 60"));
    }

    #[test]
    fn names_that_are_too_long_or_ambiguous_are_refused() {
        let names = Names::new("__", [("a", Some("")), ("b", None)]).unwrap();

        assert!(matches!(
            names.outer("a", "b__x"),
            Err(NameRefused::Ambiguous { .. })
        ));
        assert!(matches!(
            names.outer("c", "x"),
            Err(NameRefused::UnknownServer { .. })
        ));
        let longest = "x".repeat(125);
        assert_eq!(names.outer("b", &longest).unwrap().len(), 128);
        let too_long = "x".repeat(126);
        assert!(matches!(
            names.outer("b", &too_long),
            Err(NameRefused::TooLong { .. })
        ));
    }

    #[test]
    fn every_name_that_is_offered_leads_back_to_its_server() {
        let mut random = SplitMix64::new(19);
        let mut offered = 0;
        for _ in 0..20_000 {
            let separator = *random.pick(&["__", "_", "-", "._"]);
            let servers: Vec<_> = (0..1 + random.below(4))
                .map(|at| {
                    let prefix = random.chance(60).then(|| random.text("ab_-.", 4));
                    (format!("{}{at}", random.text("ab_ -", 3)), prefix)
                })
                .collect();
            let pairs = servers
                .iter()
                .map(|(name, prefix)| (name.as_str(), prefix.as_deref()));
            let Ok(names) = Names::new(separator, pairs) else {
                continue;
            };
            let mut seen = std::collections::BTreeMap::new();
            for _ in 0..8 {
                let (server, name) = (&random.pick(&servers).0, random.text("ab_-.", 6));
                let Ok(outer) = names.outer(server, &name) else {
                    continue;
                };
                assert_eq!(names.split(&outer), Some((server.as_str(), name.as_str())));
                let owner = (server.clone(), name.clone());
                let before = seen.insert(outer.into_owned(), owner.clone());
                assert!(before.is_none_or(|before| before == owner));
                offered += 1;
            }
        }
        assert!(offered > 20_000, "{offered}");
    }

    #[test]
    fn the_generation_depends_on_servers_and_prefixes() {
        let generation = |servers: &[(&str, Option<&str>)]| {
            Names::new("__", servers.iter().copied())
                .unwrap()
                .generation()
        };

        let one = generation(&[("a", None), ("b", None)]);
        assert_eq!(one, generation(&[("a", Some("a")), ("b", None)]));
        assert_ne!(one, generation(&[("b", None), ("a", None)]));
        assert_ne!(one, generation(&[("a", Some("x")), ("b", None)]));
        assert_ne!(one, generation(&[("a", None)]));
    }
}
