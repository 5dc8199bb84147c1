//! Matches a URI against a template, and extracts the values of its variables.
//!
//! The path is compiled into a state machine of steps. A table holds, for each step and each offset in the URI, whether
//! the rest matches from there. It is filled from the end, so that it costs the product of both lengths for every
//! template, unlike backtracking. Then one pass from the start takes the values, each as long as possible.

use super::{CharClass, PathPart, QueryExpression, TraversalCheck, UriTemplate, Variables};

/// A state of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MatchStep {
    /// Matches this byte, then the next step.
    Byte(u8),
    /// Matches a value, one or more characters of a class, then the step `then`.
    Value {
        name: String,
        class: CharClass,
        /// Characters of the class that end the value, because the tail begins with them.
        stops: &'static [u8],
        is_list: bool,
        then: usize,
    },
    /// Matches a slash and the next step, or else the step `or`.
    Segment { or: usize },
}

/// Compiles the path of a template.
pub(super) fn compile(template: &UriTemplate) -> Vec<MatchStep> {
    let stops: &[u8] = match (&template.query, &template.fragment) {
        (None, None) => b"",
        (None, Some(_)) => b"#",
        (Some(QueryExpression { lead: '?', .. }), None) => b"?",
        (Some(QueryExpression { lead: '?', .. }), Some(_)) => b"?#",
        (Some(_), None) => b"&",
        (Some(_), Some(_)) => b"&#",
    };
    let mut steps = Vec::new();
    for part in &template.parts {
        match part {
            PathPart::Literal(text) => steps.extend(text.bytes().map(MatchStep::Byte)),
            PathPart::Simple(names) => {
                for (at, name) in names.iter().enumerate() {
                    steps.extend((at > 0).then_some(MatchStep::Byte(b',')));
                    let then = steps.len() + 1;
                    steps.push(value_step(name, false, then));
                }
            }
            PathPart::Reserved(name) => {
                let then = steps.len() + 1;
                steps.push(MatchStep::Value {
                    name: name.clone(),
                    class: CharClass::Reserved,
                    stops,
                    is_list: false,
                    then,
                });
            }
            PathPart::Segments(variables) => {
                for variable in variables {
                    let segment = steps.len();
                    let after = segment + 2;
                    // A list may continue with another segment.
                    let then = if variable.is_list { segment } else { after };
                    steps.push(MatchStep::Segment { or: after });
                    steps.push(value_step(&variable.name, variable.is_list, then));
                }
            }
        }
    }
    steps
}

fn value_step(name: &str, is_list: bool, then: usize) -> MatchStep {
    MatchStep::Value {
        name: name.to_owned(),
        class: CharClass::Unreserved,
        stops: b"",
        is_list,
        then,
    }
}

/// Returns the values of the variables, if `uri` matches.
pub(super) fn find(template: &UriTemplate, uri: &str) -> Option<Variables> {
    if uri.len() > MAX_URI_LEN || !uri.is_ascii() {
        return None;
    }
    let uri = uri.as_bytes();
    if !has_literal_prefix(&template.steps, uri) {
        return None;
    }
    let table = MatchTable::fill(template, uri);
    if !table.fits(0, 0) {
        return None;
    }
    let mut values = MatchedValues {
        variables: Variables::default(),
        traversal_check: template.traversal_check,
    };
    let at = take_path_values(&template.steps, &table, uri, &mut values)?;
    for (name, raw, is_list) in parse_tail(template, &uri[at..])? {
        values.take(name, raw, is_list, Separators::Any)?;
    }
    Some(values.variables)
}

/// Returns whether the literal prefix matches: a cheap check that rejects most URIs of other templates.
fn has_literal_prefix(steps: &[MatchStep], uri: &[u8]) -> bool {
    let mut bytes = uri.iter();
    let fixed = steps.iter().map_while(|step| match step {
        MatchStep::Byte(byte) => Some(byte),
        MatchStep::Value { .. } | MatchStep::Segment { .. } => None,
    });
    fixed.into_iter().all(|byte| bytes.next() == Some(byte))
}

/// Whether the rest of the URI matches, by step and offset.
struct MatchTable {
    fits: Vec<bool>,
    offsets: usize,
}

impl MatchTable {
    fn fill(template: &UriTemplate, uri: &[u8]) -> Self {
        let steps = &template.steps;
        let offsets = uri.len() + 1;
        let mut table = Self {
            fits: vec![false; offsets * (steps.len() + 1)],
            offsets,
        };
        let ends = path_ends(template, uri);
        for at in (0..offsets).rev() {
            let ends = ends.contains(&Some(at)) && parse_tail(template, &uri[at..]).is_some();
            table.set(steps.len(), at, ends);
            for (step, of) in steps.iter().enumerate().rev() {
                let fits = match of {
                    MatchStep::Byte(byte) => {
                        uri.get(at) == Some(byte) && table.fits(step + 1, at + 1)
                    }
                    MatchStep::Value {
                        class, stops, then, ..
                    } => char_len(&uri[at..], *class, stops).is_some_and(|length| {
                        table.fits(step, at + length) || table.fits(*then, at + length)
                    }),
                    MatchStep::Segment { or } => {
                        let here = uri.get(at) == Some(&b'/') && table.fits(step + 1, at + 1);
                        here || table.fits(*or, at)
                    }
                };
                table.set(step, at, fits);
            }
        }
        table
    }

    fn fits(&self, step: usize, at: usize) -> bool {
        self.fits[step * self.offsets + at]
    }

    fn set(&mut self, step: usize, at: usize, fits: bool) {
        self.fits[step * self.offsets + at] = fits;
    }
}

/// Takes the values of the path, and returns the offset where it ends.
fn take_path_values(
    steps: &[MatchStep],
    table: &MatchTable,
    uri: &[u8],
    values: &mut MatchedValues,
) -> Option<usize> {
    let (mut step, mut at) = (0, 0);
    while let Some(of) = steps.get(step) {
        match of {
            MatchStep::Byte(_) => (step, at) = (step + 1, at + 1),
            MatchStep::Segment { or } => {
                if uri.get(at) == Some(&b'/') && table.fits(step + 1, at + 1) {
                    (step, at) = (step + 1, at + 1);
                } else {
                    step = *or;
                }
            }
            MatchStep::Value {
                name,
                class,
                stops,
                is_list,
                then,
            } => {
                let start = at;
                at += char_len(&uri[at..], *class, stops)?;
                while table.fits(step, at) {
                    at += char_len(&uri[at..], *class, stops)?;
                }
                let separators = match class {
                    CharClass::Unreserved => Separators::None,
                    CharClass::Reserved => Separators::Plain,
                };
                values.take(name, &uri[start..at], *is_list, separators)?;
                step = *then;
            }
        }
    }
    Some(at)
}

/// Returns the offsets at which the path can end: the end of the URI, and the start of the query and fragment.
///
/// No value of the path contains the character that starts them (see [`compile`]), so that character occurs in the path
/// exactly as often as in the literals of the template. Parsing a tail at every occurrence would take quadratic time.
fn path_ends(template: &UriTemplate, uri: &[u8]) -> [Option<usize>; 3] {
    let begins_with = |character: u8| {
        let is_literal = |step: &&MatchStep| **step == MatchStep::Byte(character);
        let literals = template.steps.iter().filter(is_literal).count();
        let mut offsets = (0..uri.len()).filter(|at| uri[*at] == character);
        offsets.nth(literals)
    };
    let query = template.query.as_ref();
    let lead = query.and_then(|query| u8::try_from(query.lead).ok());
    let fragment = template.fragment.as_ref().map(|_| b'#');
    [
        Some(uri.len()),
        lead.and_then(begins_with),
        fragment.and_then(begins_with),
    ]
}

/// A value before decoding and checking: the name of the variable, the encoded text, whether it is a list.
type RawMatch<'t, 'u> = (&'t str, &'u [u8], bool);

/// Parses `rest` as the query and fragment of the template. `None` if other text remains.
fn parse_tail<'t, 'u>(template: &'t UriTemplate, rest: &'u [u8]) -> Option<Vec<RawMatch<'t, 'u>>> {
    let mut found: Vec<RawMatch<'t, 'u>> = Vec::new();
    let mut rest = rest;
    if let Some(name) = &template.fragment
        && let Some(hash) = rest.iter().position(|byte| *byte == b'#')
    {
        found.push((name, &rest[hash + 1..], false));
        rest = &rest[..hash];
    }
    if let Some(query) = &template.query
        && let Some((lead, pairs)) = rest.split_first()
        && char::from(*lead) == query.lead
    {
        for pair in pairs.split(|byte| *byte == b'&') {
            let equals = pair.iter().position(|byte| *byte == b'=')?;
            let (key, text) = (&pair[..equals], &pair[equals + 1..]);
            let variable = query
                .variables
                .iter()
                .find(|of| of.name.as_bytes() == key)?;
            // Lists are not searched: they may repeat so often that the search would take quadratic time.
            if !variable.is_list && found.iter().any(|(name, ..)| *name == variable.name) {
                return None;
            }
            found.push((&variable.name, text, variable.is_list));
        }
        rest = &[];
    }
    rest.is_empty().then_some(found)
}

/// Values after decoding and checking.
struct MatchedValues {
    variables: Variables,
    traversal_check: TraversalCheck,
}

impl MatchedValues {
    fn take(&mut self, name: &str, raw: &[u8], is_list: bool, allowed: Separators) -> Option<()> {
        let text = decode(raw)?;
        if self.traversal_check == TraversalCheck::Enabled
            && !is_traversal_safe(&text, raw, allowed)
        {
            return None;
        }
        if is_list {
            self.variables.push(name, text);
        } else {
            self.variables.set(name, text);
        }
        Some(())
    }
}

/// The separators, `/` and `\\`, that a value may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Separators {
    None,
    /// Slashes that are not percent-encoded, and so visible to every proxy and filter.
    Plain,
    Any,
}

/// Returns whether a value is safe as a part of a file path: no path traversal, no NUL.
fn is_traversal_safe(text: &str, raw: &[u8], allowed: Separators) -> bool {
    let is_separator = |character| matches!(character, '/' | '\\');
    let separators = text.matches(is_separator).count();
    let fit = match allowed {
        Separators::None => separators == 0,
        Separators::Plain => separators == raw.iter().filter(|byte| **byte == b'/').count(),
        Separators::Any => true,
    };
    let has_dots = text
        .split(is_separator)
        .any(|part| matches!(part, "." | ".."));
    fit && !has_dots && !text.contains('\0')
}

/// Returns the length of the first character of `rest`, if it is percent-encoded or in the class.
fn char_len(rest: &[u8], class: CharClass, stops: &[u8]) -> Option<usize> {
    match rest {
        [b'%', high, low, ..] => (high.is_ascii_hexdigit() && low.is_ascii_hexdigit()).then_some(3),
        [byte, ..] => (is_in_class(class, *byte) && !stops.contains(byte)).then_some(1),
        [] => None,
    }
}

fn decode(raw: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
                bytes.push(digit(*high)? << 4 | digit(*low)?);
                after
            }
            (b'%', _) => return None,
            (byte, after) => {
                bytes.push(*byte);
                after
            }
        };
    }
    String::from_utf8(bytes).ok()
}

pub(super) fn is_in_class(class: CharClass, byte: u8) -> bool {
    let is_reserved = || b":/?#[]@!$&'()*+,;=".contains(&byte);
    byte.is_ascii_alphanumeric()
        || b"-._~".contains(&byte)
        || (class == CharClass::Reserved && is_reserved())
}

/// Longer URIs match no template, which bounds the size of the table.
const MAX_URI_LEN: usize = 8 * 1024;
