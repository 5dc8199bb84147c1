//! Parses `#[tool(task)]` and `#[tool(task(required, after = "5s"))]`, options of the extension in `bowline-tasks`.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned as _;
use syn::{Error, LitStr, Result, token};

use crate::options::{nearest, text};

/// Returns the expression of the task settings of a tool.
pub(crate) fn task_settings(meta: &ParseNestedMeta<'_>) -> Result<TokenStream> {
    // An error that the crate is missing points to the option.
    let span = meta.path.span();
    let mut settings = quote_spanned!(span=> ::bowline_tasks::TaskSettings::new());
    if meta.input.peek(token::Paren) {
        meta.parse_nested_meta(|option| {
            settings.extend(setter(&option)?);
            Ok(())
        })?;
    }
    Ok(settings)
}

fn setter(meta: &ParseNestedMeta<'_>) -> Result<TokenStream> {
    let name = meta.path.get_ident().map(ToString::to_string);
    match name.as_deref() {
        Some("required") => Ok(quote!(.required())),
        Some("resumable") => Ok(quote!(.resumable())),
        Some("at_most_once") => Ok(quote!(.at_most_once())),
        Some("after") => Ok(duration(&text(meta)?)?.setter(&quote!(after))),
        Some("ttl") => Ok(duration(&text(meta)?)?.setter(&quote!(ttl))),
        _ => Err(nearest(meta, KNOWN_OPTIONS)),
    }
}

struct Millis(u64);

impl Millis {
    fn setter(&self, name: &TokenStream) -> TokenStream {
        let millis = self.0;
        quote!(.#name(::core::time::Duration::from_millis(#millis)))
    }
}

/// Parses a duration such as `500ms`, `5s`, `2m` or `1h`.
fn duration(text: &LitStr) -> Result<Millis> {
    let value = text.value();
    let digits = value.find(|it: char| !it.is_ascii_digit());
    let (number, unit) = value.split_at(digits.unwrap_or(value.len()));
    let factor = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60 * 1000),
        "h" => Some(60 * 60 * 1000),
        _ => None,
    };
    let number = number.parse::<u64>().ok();
    let millis = number
        .zip(factor)
        .and_then(|(number, factor)| number.checked_mul(factor));
    millis
        .map(Millis)
        .ok_or_else(|| invalid_duration(text.span(), &value))
}

fn invalid_duration(span: Span, value: &str) -> Error {
    let why = format!("expected a duration such as `500ms`, `5s`, `2m` or `1h`, got `{value}`");
    Error::new(span, why)
}

const KNOWN_OPTIONS: &[&str] = &["required", "resumable", "at_most_once", "after", "ttl"];
