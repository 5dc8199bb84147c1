//! Reading a template backwards: from a URI to the values that make it.
//!
//! The path is a small machine whose states are the template's steps. A table says for every step and
//! every place in the URI whether the rest fits from there; it is filled from the end, so that its cost
//! is the product of both lengths, whatever the template. Then one walk from the start takes the values,
//! each as long as it can be.

use super::{Checks, Class, Part, Query, UriTemplate, Variables};

/// One state of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// This byte, then the next step.
    Byte(u8),
    /// One or more characters of a class: a value. Then the step `then`.
    Value {
        name: String,
        class: Class,
        /// Where it ends even though the class goes on: a tail begins there.
        stops: &'static [u8],
        is_list: bool,
        then: usize,
    },
    /// A slash and the next step, or the step `or`.
    Segment { or: usize },
}

/// The machine for the path of a template.
pub(super) fn steps(template: &UriTemplate) -> Vec<Step> {
    let stops: &[u8] = match (&template.query, &template.fragment) {
        (None, None) => b"",
        (None, Some(_)) => b"#",
        (Some(Query { lead: '?', .. }), None) => b"?",
        (Some(Query { lead: '?', .. }), Some(_)) => b"?#",
        (Some(_), None) => b"&",
        (Some(_), Some(_)) => b"&#",
    };
    let mut steps = Vec::new();
    for part in &template.parts {
        match part {
            Part::Literal(text) => steps.extend(text.bytes().map(Step::Byte)),
            Part::Simple(names) => {
                for (at, name) in names.iter().enumerate() {
                    steps.extend((at > 0).then_some(Step::Byte(b',')));
                    let then = steps.len() + 1;
                    steps.push(value(name, false, then));
                }
            }
            Part::Reserved(name) => {
                let then = steps.len() + 1;
                steps.push(Step::Value {
                    name: name.clone(),
                    class: Class::Reserved,
                    stops,
                    is_list: false,
                    then,
                });
            }
            Part::Segments(variables) => {
                for variable in variables {
                    let segment = steps.len();
                    let after = segment + 2;
                    // A list may go on with another segment.
                    let then = if variable.is_list { segment } else { after };
                    steps.push(Step::Segment { or: after });
                    steps.push(value(&variable.name, variable.is_list, then));
                }
            }
        }
    }
    steps
}

fn value(name: &str, is_list: bool, then: usize) -> Step {
    Step::Value {
        name: name.to_owned(),
        class: Class::Unreserved,
        stops: b"",
        is_list,
        then,
    }
}

/// The values that make `uri`, if any do.
pub(super) fn find(template: &UriTemplate, uri: &str) -> Option<Variables> {
    if uri.len() > LONGEST_URI || !uri.is_ascii() {
        return None;
    }
    let uri = uri.as_bytes();
    if !begins_alike(&template.steps, uri) {
        return None;
    }
    let table = Table::fill(template, uri);
    if !table.fits(0, 0) {
        return None;
    }
    let mut found = Found {
        variables: Variables::default(),
        checks: template.checks,
    };
    let at = walk(&template.steps, &table, uri, &mut found)?;
    for (name, raw, is_list) in tail(template, &uri[at..])? {
        found.take(name, raw, is_list, Separators::Any)?;
    }
    Some(found.variables)
}

/// Whether the fixed beginning fits: most URIs that do not fit differ there, and that is cheap to see.
fn begins_alike(steps: &[Step], uri: &[u8]) -> bool {
    let mut bytes = uri.iter();
    let fixed = steps.iter().map_while(|step| match step {
        Step::Byte(byte) => Some(byte),
        Step::Value { .. } | Step::Segment { .. } => None,
    });
    fixed.into_iter().all(|byte| bytes.next() == Some(byte))
}

/// Whether the rest of the URI fits, by step and place.
struct Table {
    fits: Vec<bool>,
    places: usize,
}

impl Table {
    fn fill(template: &UriTemplate, uri: &[u8]) -> Self {
        let steps = &template.steps;
        let places = uri.len() + 1;
        let mut table = Self {
            fits: vec![false; places * (steps.len() + 1)],
            places,
        };
        let ends = path_ends(template, uri);
        for at in (0..places).rev() {
            let ends = ends.contains(&Some(at)) && tail(template, &uri[at..]).is_some();
            table.set(steps.len(), at, ends);
            for (step, of) in steps.iter().enumerate().rev() {
                let fits = match of {
                    Step::Byte(byte) => uri.get(at) == Some(byte) && table.fits(step + 1, at + 1),
                    Step::Value {
                        class, stops, then, ..
                    } => unit(&uri[at..], *class, stops).is_some_and(|length| {
                        table.fits(step, at + length) || table.fits(*then, at + length)
                    }),
                    Step::Segment { or } => {
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
        self.fits[step * self.places + at]
    }

    fn set(&mut self, step: usize, at: usize, fits: bool) {
        self.fits[step * self.places + at] = fits;
    }
}

/// Takes the values of the path; the place where it ends.
fn walk(steps: &[Step], table: &Table, uri: &[u8], found: &mut Found) -> Option<usize> {
    let (mut step, mut at) = (0, 0);
    while let Some(of) = steps.get(step) {
        match of {
            Step::Byte(_) => (step, at) = (step + 1, at + 1),
            Step::Segment { or } => {
                if uri.get(at) == Some(&b'/') && table.fits(step + 1, at + 1) {
                    (step, at) = (step + 1, at + 1);
                } else {
                    step = *or;
                }
            }
            Step::Value {
                name,
                class,
                stops,
                is_list,
                then,
            } => {
                let start = at;
                at += unit(&uri[at..], *class, stops)?;
                while table.fits(step, at) {
                    at += unit(&uri[at..], *class, stops)?;
                }
                let separators = match class {
                    Class::Unreserved => Separators::None,
                    Class::Reserved => Separators::Plain,
                };
                found.take(name, &uri[start..at], *is_list, separators)?;
                step = *then;
            }
        }
    }
    Some(at)
}

/// Where the path of the URI can end: at its end, or where a query or a fragment begins.
///
/// No value of the path contains the character that begins them (see [`steps`]), so what stands before that place
/// has it as often as the literals of the template have. Looking into a tail from each such character would take
/// quadratic time.
fn path_ends(template: &UriTemplate, uri: &[u8]) -> [Option<usize>; 3] {
    let begins_with = |character: u8| {
        let is_it = |step: &&Step| **step == Step::Byte(character);
        let literals = template.steps.iter().filter(is_it).count();
        let mut places = (0..uri.len()).filter(|at| uri[*at] == character);
        places.nth(literals)
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

/// A value that was found and not judged: the variable's name, the encoded text, whether it is a list.
type Raw<'t, 'u> = (&'t str, &'u [u8], bool);

/// Reads a query and a fragment, if the template has them and `rest` is nothing else.
fn tail<'t, 'u>(template: &'t UriTemplate, rest: &'u [u8]) -> Option<Vec<Raw<'t, 'u>>> {
    let mut found: Vec<Raw<'t, 'u>> = Vec::new();
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
            // Not asked of a list, which may come again so often that looking back would take quadratic time.
            if !variable.is_list && found.iter().any(|(name, ..)| *name == variable.name) {
                return None;
            }
            found.push((&variable.name, text, variable.is_list));
        }
        rest = &[];
    }
    rest.is_empty().then_some(found)
}

/// Values that were taken and judged.
struct Found {
    variables: Variables,
    checks: Checks,
}

impl Found {
    fn take(&mut self, name: &str, raw: &[u8], is_list: bool, may: Separators) -> Option<()> {
        let text = decode(raw)?;
        if self.checks == Checks::Traversal && !stays_put(&text, raw, may) {
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

/// Which `/` and `\\` a value may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Separators {
    None,
    /// A slash that everybody on the way here could see.
    Plain,
    Any,
}

/// Whether a value, made part of a path, leads to where the template says and nowhere else.
fn stays_put(text: &str, raw: &[u8], may: Separators) -> bool {
    let is_separator = |character| matches!(character, '/' | '\\');
    let separators = text.matches(is_separator).count();
    let fit = match may {
        Separators::None => separators == 0,
        Separators::Plain => separators == raw.iter().filter(|byte| **byte == b'/').count(),
        Separators::Any => true,
    };
    let has_dots = text
        .split(is_separator)
        .any(|part| matches!(part, "." | ".."));
    fit && !has_dots && !text.contains('\0')
}

/// The length of the character at the start of `rest`, if it is one of the class or an encoded one.
fn unit(rest: &[u8], class: Class, stops: &[u8]) -> Option<usize> {
    match rest {
        [b'%', high, low, ..] => (high.is_ascii_hexdigit() && low.is_ascii_hexdigit()).then_some(3),
        [byte, ..] => (is_in(class, *byte) && !stops.contains(byte)).then_some(1),
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

pub(super) fn is_in(class: Class, byte: u8) -> bool {
    let is_reserved = || b":/?#[]@!$&'()*+,;=".contains(&byte);
    byte.is_ascii_alphanumeric()
        || b"-._~".contains(&byte)
        || (class == Class::Reserved && is_reserved())
}

/// A URI that is longer fits no template: filling the table would cost more than it can be worth.
const LONGEST_URI: usize = 8 * 1024;
