//! What stands in the brackets of the attributes.

use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Error, Expr, Ident, LitBool, LitStr, Path, Result, Token, parse_quote};

/// The setters that an attribute asks for, and the few options that are no setters.
pub(crate) struct Options {
    pub(crate) bowline: Path,
    pub(crate) name: Option<LitStr>,
    pub(crate) uri: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    setters: TokenStream,
}

/// What an attribute is for, and so which options it has.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Tool,
    Prompt,
    Resource,
}

impl Options {
    pub(crate) fn read(kind: Kind, tokens: TokenStream) -> Result<Self> {
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

    /// The calls that set everything, the description included, which by default is what the docs say.
    pub(crate) fn setters(&self, docs: Option<String>) -> TokenStream {
        let setters = &self.setters;
        let description = self.description.as_ref().map(LitStr::value).or(docs);
        let description = description.iter();
        quote!(#(.description(#description))* #setters)
    }

    fn read_one(&mut self, kind: Kind, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let Some(option) = meta.path.get_ident() else {
            return Err(unknown(kind, meta));
        };
        match (kind, option.to_string().as_str()) {
            (_, "crate") => self.bowline = meta.value()?.parse()?,
            (_, "name") => self.name = Some(meta.value()?.parse()?),
            (_, "description") => self.description = Some(meta.value()?.parse()?),
            (_, "title") => self.set_text(option, meta)?,
            (_, "icon") => self.add_icon(kind, meta)?,
            (Kind::Tool, "read_only" | "destructive" | "idempotent" | "open_world") => {
                let yes = match meta.value() {
                    Ok(value) => value.parse::<LitBool>()?.value,
                    Err(_) => true,
                };
                self.setters.extend(quote!(.#option(#yes)));
            }
            (Kind::Tool, "cancel") => self.set_cancel_mode(&meta.value()?.parse()?)?,
            (Kind::Tool, "at_once") => {
                let most: Expr = meta.value()?.parse()?;
                self.setters.extend(quote!(.at_once(#most)));
            }
            (Kind::Tool, "scopes") => self.add_scopes(meta)?,
            (Kind::Tool, "asks") => meta.parse_nested_meta(|asked| self.add_ask(&asked))?,
            (Kind::Resource, "uri") => self.uri = Some(meta.value()?.parse()?),
            (Kind::Resource, "mime_type") => self.set_text(option, meta)?,
            _ => return Err(unknown(kind, meta)),
        }
        Ok(())
    }

    fn set_text(&mut self, option: &Ident, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let text: LitStr = meta.value()?.parse()?;
        self.setters.extend(quote!(.#option(#text)));
        Ok(())
    }

    fn add_icon(&mut self, kind: Kind, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let bowline = &self.bowline;
        let source: LitStr = meta.value()?.parse()?;
        let icon = quote!(#bowline::types::Icon::new(#source));
        self.setters.extend(match kind {
            Kind::Tool => quote!(.icon(#icon)),
            Kind::Prompt | Kind::Resource => quote!(.icons([#icon])),
        });
        Ok(())
    }

    fn set_cancel_mode(&mut self, mode: &LitStr) -> Result<()> {
        let bowline = &self.bowline;
        let variant = match mode.value().as_str() {
            "drop" => quote!(Drop),
            "signal" => quote!(Signal),
            _ => {
                let why =
                    "a handler whose caller gave up is stopped (\"drop\") or told (\"signal\")";
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

    fn add_ask(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let bowline = &self.bowline;
        let asked = meta
            .path
            .get_ident()
            .map(ToString::to_string)
            .unwrap_or_default();
        let ask = match asked.as_str() {
            "elicitation" => quote!(Elicitation),
            "elicitation_by_url" => quote!(ElicitationByUrl),
            "sampling" => quote!(Sampling),
            "sampling_with_tools" => quote!(SamplingWithTools),
            "roots" => quote!(Roots),
            _ => {
                return Err(meta.error(
                    "a tool asks for: elicitation, elicitation_by_url, sampling, sampling_with_tools, roots",
                ));
            }
        };
        self.setters
            .extend(quote!(.asks(#bowline::server::Askable::#ask)));
        Ok(())
    }
}

/// The name of something, without the `r#` that Rust alone needs.
pub(crate) fn plain(ident: &Ident) -> String {
    let name = ident.to_string();
    name.strip_prefix("r#").map(str::to_owned).unwrap_or(name)
}

fn unknown(kind: Kind, meta: &ParseNestedMeta<'_>) -> Error {
    meta.error(match kind {
        Kind::Tool => {
            "a tool's options are: name, title, description, icon, read_only, destructive, idempotent, open_world, \
             cancel, at_once, scopes(…), asks(…)"
        }
        Kind::Prompt => "a prompt's options are: name, title, description, icon",
        Kind::Resource => "a resource's options are: uri, name, title, description, icon, mime_type",
    })
}
