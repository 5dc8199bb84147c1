//! URI templates (RFC 6570) that expand values into a URI and extract the values from a URI.
//!
//! A template is a path of literal text and expressions, and an optional query and fragment, the tail:
//!
//! ```text
//! repo://{owner}/{name}/files{/path*}   {?branch,depth}   {#line}
//! └────────────── path ─────────────┘   └── query ───┘   └ fragment
//! ```

mod matching;

mod variables;
pub use variables::{VariableValue, Variables};

use std::fmt::Write as _;

use matching::{MatchStep, is_in_class};

use crate::{Error, Result};

/// A URI template that can be expanded and matched.
///
/// Supports the expressions of RFC 6570 that can be matched unambiguously: `{name}`, `{a,b}`, `{+rest}`,
/// `{/segment}`, `{/segments*}`, `{?a,b*}`, `{&c}` and `{#fragment}`.
///
/// # Examples
///
/// ```
/// use bowline::server::UriTemplate;
///
/// let template = UriTemplate::parse("note://{folder}/{title}{?version}")?;
/// let found = template.find("note://garden/caf%C3%A9?version=2").expect("the URI matches");
/// assert_eq!(found.text("title"), Some("café"));
/// assert_eq!(found.text("version"), Some("2"));
/// assert_eq!(template.expand(&found), "note://garden/caf%C3%A9?version=2");
/// assert!(template.find("note://garden/..%2Fsecrets").is_none());
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct UriTemplate {
    text: String,
    parts: Vec<PathPart>,
    query: Option<QueryExpression>,
    fragment: Option<String>,
    /// The path as a state machine for matching.
    steps: Vec<MatchStep>,
    traversal_check: TraversalCheck,
}

/// Whether matched values are checked for path traversal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TraversalCheck {
    /// Rejects path traversal: `.`, `..`, separators that the expression does not allow, and NUL.
    Enabled,
    Disabled,
}

/// A part of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PathPart {
    Literal(String),
    /// `{a,b}`: values without reserved characters, separated by commas.
    Simple(Vec<String>),
    /// `{+a}`: a value with reserved characters that are not encoded.
    Reserved(String),
    /// `{/a,b*}`: path segments, each of them optional.
    Segments(Vec<Variable>),
}

/// `{?a,b*}` or, after a literal `?`, `{&a,b*}`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct QueryExpression {
    lead: char,
    variables: Vec<Variable>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Variable {
    name: String,
    is_list: bool,
}

impl UriTemplate {
    /// Parses a template.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if it is invalid, or has an expression that cannot be matched unambiguously.
    pub fn parse(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        let wrong = |why: String| Error::misuse(format!("invalid URI template `{text}`: {why}"));
        let mut template = Self {
            text: text.clone(),
            parts: Vec::new(),
            query: None,
            fragment: None,
            steps: Vec::new(),
            traversal_check: TraversalCheck::Enabled,
        };
        let mut rest = text.as_str();
        while !rest.is_empty() {
            rest = match rest.strip_prefix('{') {
                Some(inside) => {
                    let (expression, rest) = inside
                        .split_once('}')
                        .ok_or_else(|| wrong("unclosed `{`".into()))?;
                    template.add_expression(expression).map_err(wrong)?;
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
            return Err(wrong("duplicate variable".into()));
        }
        template.steps = matching::compile(&template);
        Ok(template)
    }

    /// Disables the check for path traversal, so that variables may contain `..` and encoded slashes. Only for handlers
    /// that do not build file paths from them.
    #[must_use = "returns the changed template"]
    pub fn allow_any_value(mut self) -> Self {
        self.traversal_check = TraversalCheck::Disabled;
        self
    }

    /// Returns the text of the template.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the names of the variables.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let path = self.parts.iter().flat_map(|part| match part {
            PathPart::Literal(_) => Vec::new(),
            PathPart::Simple(names) => names.iter().map(String::as_str).collect(),
            PathPart::Reserved(name) => vec![name.as_str()],
            PathPart::Segments(variables) => names_of(variables),
        });
        let query = self
            .query
            .iter()
            .flat_map(|query| names_of(&query.variables));
        path.chain(query).chain(self.fragment.as_deref())
    }

    /// Expands the template into a URI. Variables without a value are omitted.
    #[must_use]
    pub fn expand(&self, variables: &Variables) -> String {
        let mut uri = String::new();
        for part in &self.parts {
            match part {
                PathPart::Literal(text) => uri.push_str(text),
                PathPart::Simple(names) => {
                    let texts = names.iter().filter_map(|name| variables.text(name));
                    for (at, text) in texts.enumerate() {
                        uri.push_str(if at == 0 { "" } else { "," });
                        encode(&mut uri, text, CharClass::Unreserved);
                    }
                }
                PathPart::Reserved(name) => {
                    let text = variables.text(name).unwrap_or_default();
                    encode(&mut uri, text, CharClass::Reserved);
                }
                PathPart::Segments(segments) => {
                    for text in segments.iter().flat_map(|of| variables.all(&of.name)) {
                        uri.push('/');
                        encode(&mut uri, text, CharClass::Unreserved);
                    }
                }
            }
        }
        self.expand_tail(&mut uri, variables);
        uri
    }

    /// Matches a URI, and returns the values of the variables.
    #[must_use]
    pub fn find(&self, uri: &str) -> Option<Variables> {
        matching::find(self, uri)
    }

    /// Returns the length of the literal text; of two templates that match a URI, the one with more is preferred.
    pub(super) fn literal_len(&self) -> usize {
        let literals = self.parts.iter().map(|part| match part {
            PathPart::Literal(text) => text.len(),
            PathPart::Simple(_) | PathPart::Reserved(_) | PathPart::Segments(_) => 0,
        });
        literals.sum()
    }

    fn expand_tail(&self, uri: &mut String, variables: &Variables) {
        if let Some(query) = &self.query {
            let mut lead = query.lead;
            for Variable { name, .. } in &query.variables {
                for text in variables.all(name) {
                    let _ = write!(uri, "{lead}{name}=");
                    encode(uri, text, CharClass::Unreserved);
                    lead = '&';
                }
            }
        }
        if let Some(text) = self.fragment.as_ref().and_then(|name| variables.text(name)) {
            uri.push('#');
            encode(uri, text, CharClass::Reserved);
        }
    }

    fn add_literal(&mut self, literal: &str) -> Result<(), String> {
        if self.query.is_some() || self.fragment.is_some() {
            return Err("literal text must not follow a query or fragment".into());
        }
        if literal.contains('}') {
            return Err("unmatched `}`".into());
        }
        let mut text = String::new();
        for character in literal.chars() {
            match character {
                ' '..='~' => text.push(character),
                _ => encode(
                    &mut text,
                    character.encode_utf8(&mut [0; 4]),
                    CharClass::Reserved,
                ),
            }
        }
        self.parts.push(PathPart::Literal(text));
        Ok(())
    }

    fn add_expression(&mut self, expression: &str) -> Result<(), String> {
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
            return Err("an expression must not follow a fragment".into());
        }
        match operator {
            Some('?') if self.query.is_none() => {
                self.query = Some(QueryExpression {
                    lead: '?',
                    variables,
                });
            }
            Some('&') => match &mut self.query {
                Some(query) => query.variables.extend(variables),
                None => {
                    self.query = Some(QueryExpression {
                        lead: '&',
                        variables,
                    })
                }
            },
            Some('#') => self.fragment = Some(single_variable(variables)?),
            _ if self.query.is_some() => {
                return Err("only `{&…}` and `{#…}` may follow a query".into());
            }
            Some('+') => self
                .parts
                .push(PathPart::Reserved(single_variable(variables)?)),
            Some(_) => self.parts.push(PathPart::Segments(variables)),
            None => {
                let names = variables.into_iter().map(Variable::into_single);
                self.parts
                    .push(PathPart::Simple(names.collect::<Result<_, _>>()?));
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
            return Err(format!("invalid variable name `{text}`"));
        }
        Ok(Self {
            name: name.to_owned(),
            is_list,
        })
    }

    fn into_single(self) -> Result<String, String> {
        match self.is_list {
            true => Err(format!("`{}*` is not supported here", self.name)),
            false => Ok(self.name),
        }
    }
}

/// The characters that are not percent-encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CharClass {
    /// Letters, digits and `-._~`.
    Unreserved,
    /// Unreserved characters and the reserved ones of RFC 3986.
    Reserved,
}

fn encode(uri: &mut String, text: &str, class: CharClass) {
    for byte in text.bytes() {
        if is_in_class(class, byte) {
            uri.push(byte.into());
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
}

fn single_variable(variables: Vec<Variable>) -> Result<String, String> {
    match <[Variable; 1]>::try_from(variables) {
        Ok([variable]) => variable.into_single(),
        Err(_) => Err("`{+…}` and `{#…}` take exactly one variable".into()),
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
