//! `#[resource]` on a function: a resource, or a resource template if the URI has variables.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Error, ItemFn, LitStr, Result};

use crate::function::Function;
use crate::options::{AttributeKind, AttributeOptions};

pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options = AttributeOptions::read(AttributeKind::Resource, attribute)?;
    let item: ItemFn = syn::parse2(item)?;
    let bowline = &options.bowline;
    let function = Function::read(item)?;
    let Some(uri) = &options.uri else {
        let why = "missing option `uri`: `#[resource(uri = \"docs://readme\")]`";
        return Err(Error::new(Span::call_site(), why));
    };
    check_arguments(uri, &function)?;

    let name = options
        .name
        .as_ref()
        .map_or_else(|| function.name(), LitStr::value);
    let handler = function.async_handler(bowline);
    let setters = options.setters(function.docs());
    let span = function.span();
    if !uri.value().contains('{') {
        let resource =
            quote_spanned!(span=> #bowline::Resource::new(#uri, #name, #handler) #setters);
        return Ok(function.constructor(&quote!(#bowline::Resource), &resource, bowline));
    }
    let template = quote_spanned! {span=>
        #bowline::ResourceTemplate::new(#uri, #name, #handler).map(|template| template #setters)
    };
    let output = quote!(#bowline::Result<#bowline::ResourceTemplate>);
    Ok(function.constructor(&output, &template, bowline))
}

/// Checks that every argument is a variable of the template; others would always be missing.
fn check_arguments(uri: &LitStr, function: &Function) -> Result<()> {
    let template = uri.value();
    let variables = variables(&template);
    for (name, span) in function.arguments() {
        if !variables.contains(&name.as_str()) {
            let why = format!("`{template}` has no variable `{{{name}}}`");
            return Err(Error::new(span, why));
        }
    }
    Ok(())
}

/// Returns the names of the variables of a URI template.
fn variables(template: &str) -> Vec<&str> {
    let expressions = template.split('{').skip(1);
    expressions
        .filter_map(|rest| rest.split_once('}'))
        .flat_map(|(expression, _)| expression.trim_start_matches(OPERATORS).split(','))
        .map(|variable| {
            variable
                .trim_end_matches('*')
                .split(':')
                .next()
                .unwrap_or_default()
        })
        .collect()
}

const OPERATORS: &[char] = &['+', '#', '.', '/', ';', '?', '&'];
