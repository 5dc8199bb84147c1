//! `#[tools]` on an `impl` block: its methods marked `#[tool]` become a `Toolbox`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, ImplItem, ImplItemFn, ItemImpl, Meta, Path, ReceiverKind, Result, parse_quote};

use crate::function::{arguments_type_name, call_arguments, reject_generics, return_span};
use crate::options::{AttributeKind, AttributeOptions, ident_name};
use crate::{docs, parameter};

pub(crate) fn expand(attribute: &TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !attribute.is_empty() {
        return Err(Error::new(
            attribute.span(),
            "`#[tools]` has no options; write those of a tool in its `#[tool(…)]`",
        ));
    }
    let mut block: ItemImpl = syn::parse2(item)?;
    let mut bowline: Path = parse_quote!(::bowline);
    let mut tools = Vec::new();
    for item in &mut block.items {
        if let ImplItem::Fn(method) = item
            && let Some(options) = take_options(method)?
        {
            tools.push(tool(method, &options)?);
            bowline = options.bowline;
        }
    }
    if tools.is_empty() {
        let why = "no method is marked `#[tool]`";
        return Err(Error::new_spanned(&block.self_ty, why));
    }
    let (generics, _, where_clause) = block.generics.split_for_impl();
    let service = &block.self_ty;
    Ok(quote! {
        #block

        impl #generics #bowline::Toolbox for #service #where_clause {
            fn into_tools(self) -> ::std::vec::Vec<#bowline::Tool> {
                let this = ::std::sync::Arc::new(self);
                ::std::vec![#(#tools),*]
            }
        }
    })
}

/// Removes `#[tool]` from a method and returns its options. Left in place, it would be expanded again.
fn take_options(method: &mut ImplItemFn) -> Result<Option<AttributeOptions>> {
    let Some(position) = method
        .attrs
        .iter()
        .position(|attribute| attribute.path().is_ident("tool"))
    else {
        return Ok(None);
    };
    let tokens = match method.attrs.remove(position).meta {
        Meta::List(list) => list.tokens,
        Meta::Path(_) | Meta::NameValue(_) => TokenStream::new(),
    };
    AttributeOptions::read(AttributeKind::Tool, tokens).map(Some)
}

fn tool(method: &mut ImplItemFn, options: &AttributeOptions) -> Result<TokenStream> {
    let bowline = &options.bowline;
    reject_generics(&method.sig)?;
    let receiver = method.sig.receiver();
    if let Some(receiver) = receiver
        && !matches!(receiver.kind, ReceiverKind::Reference(_, _, None))
    {
        let why = "a tool must take `&self`, because calls run concurrently";
        return Err(Error::new_spanned(receiver, why));
    }
    let has_receiver = receiver.is_some();
    let parameters = parameter::read(method.sig.inputs.iter_mut())?;
    let function = &method.sig.ident;
    let arguments = arguments_type_name(function);
    let arguments_type = parameter::arguments_type(&arguments, &parameters, bowline);
    let closure = parameter::closure(&arguments, &parameters, bowline);
    let call_arguments = call_arguments(&parameters);
    let name = options
        .name
        .as_ref()
        .map_or_else(|| ident_name(function), syn::LitStr::value);
    let setters = options.setters(docs::text(&method.attrs));
    let is_async = method.sig.asyncness.is_some();
    let span = return_span(&method.sig);
    let constructor = if is_async {
        quote!(new)
    } else {
        quote!(blocking)
    };
    let handler = match (has_receiver, is_async) {
        (true, true) => quote_spanned! {span=>
            move |#closure| {
                let this = ::std::sync::Arc::clone(&this);
                async move { this.#function(#call_arguments).await }
            }
        },
        (true, false) => quote_spanned!(span=> move |#closure| this.#function(#call_arguments)),
        (false, _) if parameters.is_empty() => quote_spanned!(span=> Self::#function),
        (false, _) => quote_spanned!(span=> |#closure| Self::#function(#call_arguments)),
    };
    let tool = quote_spanned!(span=> #bowline::Tool::#constructor(#name, #handler));
    let this = has_receiver.then(|| quote!(let this = ::std::sync::Arc::clone(&this);));
    Ok(quote!({
        #arguments_type
        #this
        #tool #setters
    }))
}
