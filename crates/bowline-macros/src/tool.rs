//! `#[tool]` on a function.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{ItemFn, Result};

use crate::function::Function;
use crate::options::{AttributeKind, AttributeOptions};

pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options = AttributeOptions::read(AttributeKind::Tool, attribute)?;
    let item: ItemFn = syn::parse2(item)?;
    let bowline = &options.bowline;
    let function = Function::read(item)?;

    let name = options
        .name
        .as_ref()
        .map_or_else(|| function.name(), syn::LitStr::value);
    let handler = function.handler(bowline);
    let constructor = if function.is_async() {
        quote!(new)
    } else {
        quote!(blocking)
    };
    let setters = options.setters(function.docs());
    let tool =
        quote_spanned!(function.span()=> #bowline::Tool::#constructor(#name, #handler) #setters);
    Ok(function.constructor(&quote!(#bowline::Tool), &tool, bowline))
}
