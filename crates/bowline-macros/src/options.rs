//! Parses the options of `#[tool(…)]`, `#[prompt(…)]` and `#[resource(…)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Error, Expr, Ident, LitBool, LitStr, Path, Result, Token, parse_quote};

/// The options of an attribute; most become calls of setters.
pub(crate) struct AttributeOptions {
    pub(crate) bowline: Path,
    pub(crate) name: Option<LitStr>,
    pub(crate) uri: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    setters: TokenStream,
}

/// The attribute, which decides the valid options.
#[derive(Clone, Copy)]
pub(crate) enum AttributeKind {
    Tool,
    Prompt,
    Resource,
}

impl AttributeOptions {
    pub(crate) fn read(kind: AttributeKind, tokens: TokenStream) -> Result<Self> {
        let mut options = Self {
            bowline: parse_quote!(::bowline),
            name: None,
            uri: None,
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
            return Err(unknown(kind, meta));
        };
        match (kind, option.to_string().as_str()) {
            (_, "crate") => self.bowline = meta.value()?.parse()?,
            (_, "name") => self.name = Some(meta.value()?.parse()?),
            (_, "description") => self.description = Some(meta.value()?.parse()?),
            (_, "title") => self.set_text(option, meta)?,
            (_, "icon") => self.add_icon(kind, meta)?,
            (AttributeKind::Tool, "read_only" | "destructive" | "idempotent" | "open_world") => {
                let yes = match meta.value() {
                    Ok(value) => value.parse::<LitBool>()?.value,
                    Err(_) => true,
                };
                self.setters.extend(quote!(.#option(#yes)));
            }
            (AttributeKind::Tool, "deny_unknown") => self.setters.extend(quote!(.deny_unknown())),
            (AttributeKind::Tool, "cancel") => self.set_cancel_mode(&meta.value()?.parse()?)?,
            (AttributeKind::Tool, "max_concurrency") => {
                let limit: Expr = meta.value()?.parse()?;
                self.setters.extend(quote!(.max_concurrency(#limit)));
            }
            (AttributeKind::Tool, "scopes") => self.add_scopes(meta)?,
            (AttributeKind::Tool, "requires") => {
                meta.parse_nested_meta(|required| self.add_required_capability(&required))?;
            }
            (AttributeKind::Resource, "uri") => self.uri = Some(meta.value()?.parse()?),
            (AttributeKind::Resource, "mime_type") => self.set_text(option, meta)?,
            _ => return Err(unknown(kind, meta)),
        }
        Ok(())
    }

    fn set_text(&mut self, option: &Ident, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let text: LitStr = meta.value()?.parse()?;
        self.setters.extend(quote!(.#option(#text)));
        Ok(())
    }

    fn add_icon(&mut self, kind: AttributeKind, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let bowline = &self.bowline;
        let source: LitStr = meta.value()?.parse()?;
        let icon = quote!(#bowline::types::Icon::new(#source));
        self.setters.extend(match kind {
            AttributeKind::Tool => quote!(.icon(#icon)),
            AttributeKind::Prompt | AttributeKind::Resource => quote!(.icons([#icon])),
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
                return Err(meta.error(
                    "expected one of: elicitation, elicitation_by_url, sampling, sampling_with_tools, roots",
                ));
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

fn unknown(kind: AttributeKind, meta: &ParseNestedMeta<'_>) -> Error {
    meta.error(match kind {
        AttributeKind::Tool => {
            "expected one of: name, title, description, icon, read_only, destructive, idempotent, open_world, \
             deny_unknown, cancel, max_concurrency, scopes(…), requires(…)"
        }
        AttributeKind::Prompt => "expected one of: name, title, description, icon",
        AttributeKind::Resource => "expected one of: uri, name, title, description, icon, mime_type",
    })
}
