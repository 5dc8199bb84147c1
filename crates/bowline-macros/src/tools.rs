//! `#[tools]` on an `impl` block: its methods with `#[tool]`, `#[prompt]`, `#[resource]` or `#[completion]` become a
//! `Toolbox`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, ImplItem, ImplItemFn, Item, Meta, Path, ReceiverKind, Result, parse_quote};

use crate::definition::{Definition, HandlerParts};
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
    let mut block = match syn::parse2(item)? {
        Item::Impl(block) => block,
        item => {
            let why = "`#[tools]` belongs on an `impl` block; on a function put `#[tool]`";
            return Err(Error::new_spanned(item, why));
        }
    };
    let mut bowline: Path = parse_quote!(::bowline);
    let mut tools = Vec::new();
    let mut others = Vec::new();
    for item in &mut block.items {
        if let ImplItem::Fn(method) = item
            && let Some((kind, options)) = take_options(method)?
        {
            let (add, definition) = definition(method, kind, &options)?;
            bowline = options.bowline;
            match kind {
                AttributeKind::Tool => tools.push(definition),
                AttributeKind::Prompt | AttributeKind::Resource | AttributeKind::Completion => {
                    others.push(quote!(let server = server.#add(#definition);));
                }
            }
        }
    }
    if tools.is_empty() && others.is_empty() {
        let why =
            "put `#[tool]`, `#[prompt]`, `#[resource]` or `#[completion]` on at least one method";
        return Err(Error::new_spanned(&block.self_ty, why));
    }
    let (generics, _, where_clause) = block.generics.split_for_impl();
    let service = &block.self_ty;
    Ok(quote! {
        #block

        impl #generics #service #where_clause {
            #[doc(hidden)]
            fn __tools(this: &::std::sync::Arc<Self>) -> ::std::vec::Vec<#bowline::Tool> {
                ::std::vec![#(#tools),*]
            }
        }

        impl #generics #bowline::Toolbox for #service #where_clause {
            fn into_tools(self) -> ::std::vec::Vec<#bowline::Tool> {
                Self::__tools(&::std::sync::Arc::new(self))
            }

            fn add_to(self, server: #bowline::Server) -> #bowline::Server {
                let this = &::std::sync::Arc::new(self);
                let server = Self::__tools(this).into_iter().fold(server, #bowline::Server::tool);
                #(#others)*
                server
            }
        }
    })
}

/// Removes the attribute of a method and returns its options. Left in place, it would be expanded again.
fn take_options(method: &mut ImplItemFn) -> Result<Option<(AttributeKind, AttributeOptions)>> {
    let mut attributes = method.attrs.iter().enumerate();
    let Some((position, kind)) = attributes.find_map(|(position, attribute)| {
        let kind = AttributeKind::of(attribute.path())?;
        Some((position, kind))
    }) else {
        return Ok(None);
    };
    let tokens = match method.attrs.remove(position).meta {
        Meta::List(list) => list.tokens,
        Meta::Path(_) | Meta::NameValue(_) => TokenStream::new(),
    };
    Ok(Some((kind, AttributeOptions::read(kind, tokens)?)))
}

/// Returns the method of `Server` that adds the definition, and the definition, which uses `this`.
fn definition(
    method: &mut ImplItemFn,
    kind: AttributeKind,
    options: &AttributeOptions,
) -> Result<(TokenStream, TokenStream)> {
    let bowline = &options.bowline;
    reject_generics(&method.sig)?;
    let receiver = method.sig.receiver();
    if let Some(receiver) = receiver
        && !matches!(receiver.kind, ReceiverKind::Reference(_, _, None))
    {
        let why = "a handler must take `&self`, because calls run concurrently; change fields through a `Mutex` or \
                   an atomic";
        return Err(Error::new_spanned(receiver, why));
    }
    let has_receiver = receiver.is_some();
    let parameters = parameter::read(method.sig.inputs.iter_mut())?;
    let function = &method.sig.ident;
    let arguments = arguments_type_name(function);
    let arguments_type = parameter::arguments_type(&arguments, &parameters, bowline);
    let closure = parameter::closure(&arguments, &parameters, bowline);
    let call_arguments = call_arguments(&parameters);
    let is_async = method.sig.asyncness.is_some();
    let span = return_span(&method.sig);
    let call = match has_receiver {
        true => quote_spanned!(span=> this.#function(#call_arguments)),
        false => quote_spanned!(span=> Self::#function(#call_arguments)),
    };
    let handler = match (is_async, has_receiver) {
        (true, true) => quote_spanned! {span=>
            move |#closure| {
                let this = ::std::sync::Arc::clone(&this);
                async move { #call.await }
            }
        },
        (false, _) if kind.needs_async() => {
            quote_spanned!(span=> move |#closure| ::std::future::ready(#call))
        }
        (_, false) if parameters.is_empty() => quote_spanned!(span=> Self::#function),
        (true, false) | (false, _) => quote_spanned!(span=> move |#closure| #call),
    };
    let parts = HandlerParts {
        name: ident_name(function),
        docs: docs::text(&method.attrs),
        handler,
        is_async,
        arguments: parameter::names(&parameters).collect(),
        span,
    };
    let Definition {
        expression, add, ..
    } = Definition::new(kind, options, &parts)?;
    let this = has_receiver.then(|| quote!(let this = ::std::sync::Arc::clone(this);));
    let definition = quote!({
        #arguments_type
        #this
        #expression
    });
    Ok((add, definition))
}
