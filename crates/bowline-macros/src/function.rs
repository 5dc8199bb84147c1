//! `Function`, a parsed function that becomes the handler of a tool, prompt or resource.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Error, Ident, ItemFn, Path, Result, ReturnType, Signature};

use crate::parameter::{self, Parameter};
use crate::{docs, options};

/// A function with its parsed parameters.
pub(crate) struct Function {
    item: ItemFn,
    parameters: Vec<Parameter>,
    arguments: Ident,
}

impl Function {
    pub(crate) fn read(mut item: ItemFn) -> Result<Self> {
        reject_generics(&item.sig)?;
        item.modifiers.require_empty()?;
        if let Some(receiver) = item.sig.receiver() {
            let why = "methods need `#[tools]` on their `impl` block";
            return Err(Error::new_spanned(receiver, why));
        }
        let parameters = parameter::read(item.sig.inputs.iter_mut())?;
        let arguments = arguments_type_name(&item.sig.ident);
        Ok(Self {
            item,
            parameters,
            arguments,
        })
    }

    pub(crate) fn name(&self) -> String {
        options::ident_name(&self.item.sig.ident)
    }

    pub(crate) fn docs(&self) -> Option<String> {
        docs::text(&self.item.attrs)
    }

    pub(crate) fn is_async(&self) -> bool {
        self.item.sig.asyncness.is_some()
    }

    /// Returns the names of the arguments in requests, and their spans.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = (String, Span)> {
        parameter::names(&self.parameters)
    }

    /// Returns the span for errors about an unsuitable function: its return type.
    pub(crate) fn span(&self) -> Span {
        return_span(&self.item.sig)
    }

    /// Returns the function, or a closure that calls it with the parameters of a handler.
    pub(crate) fn handler(&self, bowline: &Path) -> TokenStream {
        if self.parameters.is_empty() {
            let function = &self.item.sig.ident;
            return quote_spanned!(self.span()=> #function);
        }
        let closure = parameter::closure(&self.arguments, &self.parameters, bowline);
        let call_arguments = call_arguments(&self.parameters);
        let function = &self.item.sig.ident;
        quote_spanned!(self.span()=> |#closure| #function(#call_arguments))
    }

    /// Like [`Self::handler`], for handlers that must be asynchronous: wraps a synchronous function in `ready`.
    pub(crate) fn async_handler(&self, bowline: &Path) -> TokenStream {
        if self.is_async() {
            return self.handler(bowline);
        }
        let closure = parameter::closure(&self.arguments, &self.parameters, bowline);
        let call_arguments = call_arguments(&self.parameters);
        let function = &self.item.sig.ident;
        quote_spanned!(self.span()=> |#closure| ::std::future::ready(#function(#call_arguments)))
    }

    /// Returns a function of the same name that returns `body`, with the original function inside it.
    pub(crate) fn constructor(
        &self,
        output: &TokenStream,
        body: &TokenStream,
        bowline: &Path,
    ) -> TokenStream {
        let arguments = parameter::arguments_type(&self.arguments, &self.parameters, bowline);
        let ItemFn {
            attrs,
            vis,
            sig,
            block,
            ..
        } = &self.item;
        let (outer, inner): (Vec<&Attribute>, Vec<&Attribute>) = attrs
            .iter()
            .partition(|attribute| docs::is_doc(attribute) || attribute.path().is_ident("cfg"));
        let name = &sig.ident;
        quote! {
            #(#outer)*
            #vis fn #name() -> #output {
                #arguments
                #(#inner)*
                #sig #block
                #body
            }
        }
    }
}

/// Returns the arguments for calling the function inside the closure of [`parameter::closure`].
pub(crate) fn call_arguments(parameters: &[Parameter]) -> TokenStream {
    let arguments = parameters.iter().enumerate();
    let arguments = arguments.map(|(position, parameter)| parameter.call_argument(position));
    quote!(#(#arguments),*)
}

/// Returns `AddArguments` for `add`.
pub(crate) fn arguments_type_name(function: &Ident) -> Ident {
    let words = options::ident_name(function);
    let capitalised = words.split('_').map(|word| {
        let mut letters = word.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        first.chain(letters).collect::<String>()
    });
    format_ident!("{}Arguments", capitalised.collect::<String>())
}

pub(crate) fn return_span(signature: &Signature) -> Span {
    match &signature.output {
        ReturnType::Type(_, ty) => ty.span(),
        ReturnType::Default => signature.ident.span(),
    }
}

pub(crate) fn reject_generics(signature: &Signature) -> Result<()> {
    if signature.generics.params.is_empty() {
        return Ok(());
    }
    let why = "a handler cannot be generic, because its arguments have one JSON Schema";
    Err(Error::new_spanned(&signature.generics, why))
}
