//! Parses the options of `#[tool(…)]`, `#[prompt(…)]`, `#[resource(…)]` and `#[completion(…)]`.

use std::fmt;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::meta::ParseNestedMeta;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Error, Expr, Ident, LitBool, LitStr, Path, Result, Token, parse_quote, token};

use crate::task_options::task_settings;

/// The options of an attribute; most become calls of setters.
pub(crate) struct AttributeOptions {
    pub(crate) bowline: Path,
    pub(crate) name: Option<LitStr>,
    pub(crate) uri: Option<LitStr>,
    pub(crate) prompt: Option<LitStr>,
    pub(crate) template: Option<LitStr>,
    pub(crate) argument: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    setters: TokenStream,
}

/// The attribute, which decides the valid options.
#[derive(Clone, Copy)]
pub(crate) enum AttributeKind {
    Tool,
    Prompt,
    Resource,
    Completion,
}

impl AttributeKind {
    /// Returns the attribute with this path; `None` for another one.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        // `#[bowline::tool]` is the same as `#[tool]`.
        match path.segments.last()?.ident.to_string().as_str() {
            "tool" => Some(Self::Tool),
            "prompt" => Some(Self::Prompt),
            "resource" => Some(Self::Resource),
            "completion" => Some(Self::Completion),
            _ => None,
        }
    }

    /// Returns whether a synchronous handler must be wrapped: only tools run on the blocking pool.
    pub(crate) fn needs_async(self) -> bool {
        !matches!(self, Self::Tool)
    }

    fn known_options(self) -> &'static [&'static str] {
        match self {
            Self::Tool => &[
                "name",
                "title",
                "description",
                "icon",
                "read_only",
                "destructive",
                "idempotent",
                "open_world",
                "deny_unknown",
                "cancel",
                "max_concurrency",
                "scopes",
                "requires",
                "task",
                "settings",
            ],
            Self::Prompt => &["name", "title", "description", "icon"],
            Self::Resource => &["uri", "name", "title", "description", "icon", "mime_type"],
            Self::Completion => &["prompt", "template", "argument"],
        }
    }
}

impl fmt::Display for AttributeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::Completion => "completion",
        })
    }
}

impl AttributeOptions {
    pub(crate) fn read(kind: AttributeKind, tokens: TokenStream) -> Result<Self> {
        let mut options = Self {
            bowline: parse_quote!(::bowline),
            name: None,
            uri: None,
            prompt: None,
            template: None,
            argument: None,
            description: None,
            setters: TokenStream::new(),
        };
        let parser = syn::meta::parser(|meta| options.read_one(kind, &meta));
        parser.parse2(tokens)?;
        Ok(options)
    }

    /// Returns the calls of all setters. The description defaults to `docs`.
    pub(crate) fn setters(&self, docs: Option<String>) -> TokenStream {
        let setters = &self.setters;
        let description = self.description.as_ref().map(LitStr::value).or(docs);
        let description = description.iter();
        quote!(#(.description(#description))* #setters)
    }

    fn read_one(&mut self, kind: AttributeKind, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let Some(option) = meta.path.get_ident() else {
            return Err(nearest(meta, kind.known_options()));
        };
        let name = option.to_string();
        if name != "crate" && !kind.known_options().contains(&name.as_str()) {
            return Err(nearest(meta, kind.known_options()));
        }
        match (kind, name.as_str()) {
            (_, "crate") => self.bowline = meta.value()?.parse()?,
            (_, "name") => self.name = Some(text(meta)?),
            (_, "description") => self.description = Some(text(meta)?),
            (_, "title") => self.set_text(option, meta)?,
            (_, "icon") => self.add_icon(kind, meta)?,
            (AttributeKind::Tool, "read_only" | "destructive" | "idempotent" | "open_world") => {
                let yes = match meta.value() {
                    Ok(value) => value.parse().map_err(|error| boolean(&name, &error))?,
                    Err(_) => LitBool::new(true, option.span()),
                };
                self.setters.extend(quote!(.#option(#yes)));
            }
            (AttributeKind::Tool, "deny_unknown") => self.setters.extend(quote!(.deny_unknown())),
            (AttributeKind::Tool, "cancel") => self.set_cancel_mode(&text(meta)?)?,
            (AttributeKind::Tool, "max_concurrency") => {
                let limit: Expr = meta.value()?.parse()?;
                self.setters.extend(quote!(.max_concurrency(#limit)));
            }
            (AttributeKind::Tool, "scopes") => self.add_scopes(meta)?,
            (AttributeKind::Tool, "requires") => {
                meta.parse_nested_meta(|required| self.add_required_capability(&required))?;
            }
            (AttributeKind::Tool, "task") => {
                let settings = task_settings(meta)?;
                self.setters.extend(quote!(.with_settings(#settings)));
            }
            (AttributeKind::Tool, "settings") => self.add_settings(meta)?,
            (AttributeKind::Resource, "uri") => self.uri = Some(text(meta)?),
            (AttributeKind::Resource, "mime_type") => self.set_text(option, meta)?,
            (_, "prompt") => self.prompt = Some(text(meta)?),
            (_, "template") => self.template = Some(text(meta)?),
            (_, "argument") => self.argument = Some(text(meta)?),
            _ => return Err(nearest(meta, kind.known_options())),
        }
        Ok(())
    }

    fn set_text(&mut self, option: &Ident, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let text = text(meta)?;
        self.setters.extend(quote!(.#option(#text)));
        Ok(())
    }

    fn add_icon(&mut self, kind: AttributeKind, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let bowline = &self.bowline;
        let source = text(meta)?;
        let icon = quote!(#bowline::types::Icon::new(#source));
        self.setters.extend(match kind {
            AttributeKind::Tool => quote!(.icon(#icon)),
            AttributeKind::Prompt | AttributeKind::Resource | AttributeKind::Completion => {
                quote!(.icons([#icon]))
            }
        });
        Ok(())
    }

    fn set_cancel_mode(&mut self, mode: &LitStr) -> Result<()> {
        let bowline = &self.bowline;
        let variant = match mode.value().as_str() {
            "drop" => quote!(Drop),
            "signal" => quote!(Signal),
            _ => {
                let why = "expected `cancel = \"drop\"` or `cancel = \"signal\"`";
                return Err(Error::new_spanned(mode, why));
            }
        };
        self.setters
            .extend(quote!(.cancel_mode(#bowline::CancelMode::#variant)));
        Ok(())
    }

    fn add_scopes(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let content;
        syn::parenthesized!(content in meta.input);
        let scopes = Punctuated::<LitStr, Token![,]>::parse_terminated(&content)?;
        let scopes = scopes.iter();
        self.setters.extend(quote!(.scopes([#(#scopes),*])));
        Ok(())
    }

    fn add_settings(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        if !meta.input.peek(token::Paren) {
            let why = "expected the settings of an extension: `settings(Paint { layers: 2 })`";
            return Err(meta.error(why));
        }
        let content;
        syn::parenthesized!(content in meta.input);
        let settings: Expr = content.parse()?;
        self.setters.extend(quote!(.with_settings(#settings)));
        Ok(())
    }

    fn add_required_capability(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let bowline = &self.bowline;
        let name = meta
            .path
            .get_ident()
            .map(ToString::to_string)
            .unwrap_or_default();
        let capability = match name.as_str() {
            "elicitation" => quote!(Elicitation),
            "elicitation_by_url" => quote!(ElicitationByUrl),
            "sampling" => quote!(Sampling),
            "sampling_with_tools" => quote!(SamplingWithTools),
            "roots" => quote!(Roots),
            _ => {
                let known = [
                    "elicitation",
                    "elicitation_by_url",
                    "sampling",
                    "sampling_with_tools",
                    "roots",
                ];
                return Err(nearest(meta, &known));
            }
        };
        self.setters.extend(
            quote!(.requires_capability(#bowline::server::RequiredCapability::#capability)),
        );
        Ok(())
    }
}

/// Returns the name of an identifier, without `r#`.
pub(crate) fn ident_name(ident: &Ident) -> String {
    let name = ident.to_string();
    name.strip_prefix("r#").map(str::to_owned).unwrap_or(name)
}

/// Parses the value of an option, a text.
pub(crate) fn text(meta: &ParseNestedMeta<'_>) -> Result<LitStr> {
    let option = meta.path.to_token_stream();
    let why = format!("expected a text: `{option} = \"…\"`");
    let Ok(value) = meta.value() else {
        return Err(meta.error(why));
    };
    value.parse().map_err(|error| Error::new(error.span(), why))
}

fn boolean(option: &str, error: &Error) -> Error {
    let why = format!("expected `{option}` or `{option} = false`");
    Error::new(error.span(), why)
}

/// Returns the error for an unknown option, with the known one that is most like it.
pub(crate) fn nearest(meta: &ParseNestedMeta<'_>, known: &[&str]) -> Error {
    let option = meta.path.to_token_stream().to_string();
    let nearest = known
        .iter()
        .map(|name| (distance(&option, name), name))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, name)| *distance <= name.len() / 2);
    let known = known.join(", ");
    meta.error(match nearest {
        Some((_, name)) => {
            format!("unknown option `{option}`, did you mean `{name}`? Known: {known}")
        }
        None => format!("unknown option `{option}`, expected one of: {known}"),
    })
}

/// Returns the number of letters to insert, delete or replace to get from one text to the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (line, left) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, right) in to.chars().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.chars().count()]
}
