//! URI templates (RFC 6570), read in both directions: from values to a URI, and back.
//!
//! A template is a path of literal text and expressions, and a tail that may be missing:
//!
//! ```text
//! repo://{owner}/{name}/files{/path*}   {?branch,depth}   {#line}
//! └────────────── path ─────────────┘   └── query ───┘   └ fragment
//! ```

mod matching;

mod variables;
pub use variables::{Value, Variables};

use std::fmt::Write as _;

use matching::{Step, is_in};

use crate::{Error, Result};

/// A pattern of URIs.
///
/// It has the expressions of RFC 6570 that can be read backwards without guessing: `{name}`, `{a,b}`,
/// `{+rest}`, `{/segment}`, `{/segments*}`, `{?a,b*}`, `{&c}` and `{#fragment}`.
///
/// # Examples
///
/// ```
/// use bowline::server::UriTemplate;
///
/// let template = UriTemplate::parse("note://{folder}/{title}{?version}")?;
/// let found = template.find("note://garden/caf%C3%A9?version=2").expect("it fits");
/// assert_eq!(found.text("title"), Some("café"));
/// assert_eq!(found.text("version"), Some("2"));
/// assert_eq!(template.expand(&found), "note://garden/caf%C3%A9?version=2");
/// assert!(template.find("note://garden/..%2Fsecrets").is_none());
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct UriTemplate {
    text: String,
    parts: Vec<Part>,
    query: Option<Query>,
    fragment: Option<String>,
    /// The path as a machine that reads it backwards.
    steps: Vec<Step>,
    checks: Checks,
}

/// Which values a variable may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checks {
    /// Those that stay where they are put: no `..`, no separator where none belongs, no NUL.
    Traversal,
    None,
}

/// A part of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    /// `{a,b}`: values without reserved characters, with commas between them.
    Simple(Vec<String>),
    /// `{+a}`: a value in which reserved characters stand for themselves.
    Reserved(String),
    /// `{/a,b*}`: segments of a path, each of which may be missing.
    Segments(Vec<Variable>),
}

/// `{?a,b*}` or, after a literal `?`, `{&a,b*}`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Query {
    lead: char,
    variables: Vec<Variable>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Variable {
    name: String,
    is_list: bool,
}

impl UriTemplate {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if it is no template, or has an expression that cannot be read backwards.
    pub fn parse(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        let wrong = |why: String| Error::misuse(format!("`{text}` is no usable template: {why}"));
        let mut template = Self {
            text: text.clone(),
            parts: Vec::new(),
            query: None,
            fragment: None,
            steps: Vec::new(),
            checks: Checks::Traversal,
        };
        let mut rest = text.as_str();
        while !rest.is_empty() {
            rest = match rest.strip_prefix('{') {
                Some(inside) => {
                    let (expression, rest) = inside
                        .split_once('}')
                        .ok_or_else(|| wrong("a `{` is never closed".into()))?;
                    template.add(expression).map_err(wrong)?;
                    rest
                }
                None => {
                    let (literal, rest) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
                    template.add_literal(literal).map_err(wrong)?;
                    rest
                }
            };
        }
        let mut names: Vec<_> = template.variables().collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(wrong("a variable stands in it twice".into()));
        }
        template.steps = matching::steps(&template);
        Ok(template)
    }

    /// Lets variables have any value, `..` and encoded slashes included. Only for handlers that never
    /// make a path of them.
    #[must_use = "the template that allows it is returned"]
    pub fn allow_any_value(mut self) -> Self {
        self.checks = Checks::None;
        self
    }

    /// The template as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names of its variables.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let path = self.parts.iter().flat_map(|part| match part {
            Part::Literal(_) => Vec::new(),
            Part::Simple(names) => names.iter().map(String::as_str).collect(),
            Part::Reserved(name) => vec![name.as_str()],
            Part::Segments(variables) => names_of(variables),
        });
        let query = self
            .query
            .iter()
            .flat_map(|query| names_of(&query.variables));
        path.chain(query).chain(self.fragment.as_deref())
    }

    /// The URI for these values. A variable without a value leaves nothing behind.
    #[must_use]
    pub fn expand(&self, variables: &Variables) -> String {
        let mut uri = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(text) => uri.push_str(text),
                Part::Simple(names) => {
                    let texts = names.iter().filter_map(|name| variables.text(name));
                    for (at, text) in texts.enumerate() {
                        uri.push_str(if at == 0 { "" } else { "," });
                        encode(&mut uri, text, Class::Unreserved);
                    }
                }
                Part::Reserved(name) => {
                    let text = variables.text(name).unwrap_or_default();
                    encode(&mut uri, text, Class::Reserved);
                }
                Part::Segments(segments) => {
                    for text in segments.iter().flat_map(|of| variables.all(&of.name)) {
                        uri.push('/');
                        encode(&mut uri, text, Class::Unreserved);
                    }
                }
            }
        }
        self.expand_tail(&mut uri, variables);
        uri
    }

    /// The values that make this URI, if any do.
    #[must_use]
    pub fn find(&self, uri: &str) -> Option<Variables> {
        matching::find(self, uri)
    }

    /// How much of the template is fixed: of two templates that fit a URI, the one with more fits better.
    pub(super) fn literal_len(&self) -> usize {
        let literals = self.parts.iter().map(|part| match part {
            Part::Literal(text) => text.len(),
            Part::Simple(_) | Part::Reserved(_) | Part::Segments(_) => 0,
        });
        literals.sum()
    }

    fn expand_tail(&self, uri: &mut String, variables: &Variables) {
        if let Some(query) = &self.query {
            let mut lead = query.lead;
            for Variable { name, .. } in &query.variables {
                for text in variables.all(name) {
                    let _ = write!(uri, "{lead}{name}=");
                    encode(uri, text, Class::Unreserved);
                    lead = '&';
                }
            }
        }
        if let Some(text) = self.fragment.as_ref().and_then(|name| variables.text(name)) {
            uri.push('#');
            encode(uri, text, Class::Reserved);
        }
    }

    fn add_literal(&mut self, literal: &str) -> Result<(), String> {
        if self.query.is_some() || self.fragment.is_some() {
            return Err("nothing may follow a query or a fragment".into());
        }
        if literal.contains('}') {
            return Err("a `}` was never opened".into());
        }
        let mut text = String::new();
        for character in literal.chars() {
            match character {
                ' '..='~' => text.push(character),
                _ => encode(
                    &mut text,
                    character.encode_utf8(&mut [0; 4]),
                    Class::Reserved,
                ),
            }
        }
        self.parts.push(Part::Literal(text));
        Ok(())
    }

    fn add(&mut self, expression: &str) -> Result<(), String> {
        let (operator, list) = match expression.chars().next() {
            Some(operator @ ('+' | '#' | '/' | '?' | '&')) => (Some(operator), &expression[1..]),
            Some(operator @ ('.' | ';')) => return Err(format!("`{{{operator}` is not supported")),
            _ => (None, expression),
        };
        let variables: Vec<_> = list
            .split(',')
            .map(Variable::parse)
            .collect::<Result<_, _>>()?;
        if self.fragment.is_some() {
            return Err("nothing may follow a fragment".into());
        }
        match operator {
            Some('?') if self.query.is_none() => {
                self.query = Some(Query {
                    lead: '?',
                    variables,
                });
            }
            Some('&') => match &mut self.query {
                Some(query) => query.variables.extend(variables),
                None => {
                    self.query = Some(Query {
                        lead: '&',
                        variables,
                    })
                }
            },
            Some('#') => self.fragment = Some(only(variables)?),
            _ if self.query.is_some() => return Err("only `{&…}` may follow a query".into()),
            Some('+') => self.parts.push(Part::Reserved(only(variables)?)),
            Some(_) => self.parts.push(Part::Segments(variables)),
            None => {
                let names = variables.into_iter().map(Variable::into_single);
                self.parts
                    .push(Part::Simple(names.collect::<Result<_, _>>()?));
            }
        }
        Ok(())
    }
}

impl Variable {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, is_list) = match text.strip_suffix('*') {
            Some(name) => (name, true),
            None => (text, false),
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(format!("`{text}` is no name of a variable"));
        }
        Ok(Self {
            name: name.to_owned(),
            is_list,
        })
    }

    fn into_single(self) -> Result<String, String> {
        match self.is_list {
            true => Err(format!("`{}` cannot be a list here", self.name)),
            false => Ok(self.name),
        }
    }
}

/// Which characters stand for themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Letters, digits and `-._~`.
    Unreserved,
    /// Those, and the ones that mean something in a URI.
    Reserved,
}

fn encode(uri: &mut String, text: &str, class: Class) {
    for byte in text.bytes() {
        if is_in(class, byte) {
            uri.push(byte.into());
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
}

fn only(variables: Vec<Variable>) -> Result<String, String> {
    match <[Variable; 1]>::try_from(variables) {
        Ok([variable]) => variable.into_single(),
        Err(_) => Err("`{+…}` and `{#…}` take one variable".into()),
    }
}

fn names_of(variables: &[Variable]) -> Vec<&str> {
    variables
        .iter()
        .map(|variable| variable.name.as_str())
        .collect()
}

#[cfg(test)]
mod tests;
