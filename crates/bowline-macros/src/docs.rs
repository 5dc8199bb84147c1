//! Reads doc comments as text.

use syn::{Attribute, Expr, ExprLit, Lit, Meta};

/// Returns the text of the doc comments; `None` without text.
pub(crate) fn text(attributes: &[Attribute]) -> Option<String> {
    let lines: Vec<String> = attributes.iter().filter_map(line).collect();
    let text = lines.join("\n");
    // A block comment is one attribute of many lines.
    let lines: Vec<&str> = text
        .lines()
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect();
    let text = lines.join("\n").trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Returns whether the attribute is a doc comment.
pub(crate) fn is_doc(attribute: &Attribute) -> bool {
    attribute.path().is_ident("doc")
}

fn line(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(doc) = &attribute.meta else {
        return None;
    };
    match &doc.value {
        Expr::Lit(ExprLit {
            lit: Lit::Str(line),
            ..
        }) if is_doc(attribute) => Some(line.value()),
        _ => None,
    }
}
