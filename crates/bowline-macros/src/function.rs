//! A function that becomes a handler, whatever it is a handler of.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Error, Ident, ItemFn, Path, Result, ReturnType, Signature};

use crate::parameter::{self, Parameter};
use crate::{docs, options};

/// A function, its doc comments and what its parameters are.
pub(crate) struct Function {
    item: ItemFn,
    parameters: Vec<Parameter>,
    arguments: Ident,
}

impl Function {
    pub(crate) fn read(mut item: ItemFn) -> Result<Self> {
        refuse_generics(&item.sig)?;
        item.modifiers.require_empty()?;
        if let Some(receiver) = item.sig.receiver() {
            let why = "a method becomes a tool by `#[tools]` on its `impl` block";
            return Err(Error::new_spanned(receiver, why));
        }
        let parameters = parameter::read(item.sig.inputs.iter_mut())?;
        let arguments = arguments_name(&item.sig.ident);
        Ok(Self {
            item,
            parameters,
            arguments,
        })
    }

    pub(crate) fn name(&self) -> String {
        options::plain(&self.item.sig.ident)
    }

    pub(crate) fn docs(&self) -> Option<String> {
        docs::text(&self.item.attrs)
    }

    pub(crate) fn is_async(&self) -> bool {
        self.item.sig.asyncness.is_some()
    }

    /// The names by which arguments are passed, and where they stand.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = (String, Span)> {
        parameter::names(&self.parameters)
    }

    /// Where to point if the function cannot be a handler: at what it returns.
    pub(crate) fn span(&self) -> Span {
        returned_at(&self.item.sig)
    }

    /// The function, or a closure that calls it with what the handler is given.
    pub(crate) fn handler(&self, bowline: &Path) -> TokenStream {
        if self.parameters.is_empty() {
            let function = &self.item.sig.ident;
            return quote_spanned!(self.span()=> #function);
        }
        let closure = parameter::closure(&self.arguments, &self.parameters, bowline);
        let passed = passed(&self.parameters);
        let function = &self.item.sig.ident;
        quote_spanned!(self.span()=> |#closure| #function(#passed))
    }

    /// The same for handlers that are always asynchronous: what is not `async` is ready at once.
    pub(crate) fn async_handler(&self, bowline: &Path) -> TokenStream {
        if self.is_async() {
            return self.handler(bowline);
        }
        let closure = parameter::closure(&self.arguments, &self.parameters, bowline);
        let passed = passed(&self.parameters);
        let function = &self.item.sig.ident;
        quote_spanned!(self.span()=> |#closure| ::std::future::ready(#function(#passed)))
    }

    /// A function of the same name that makes `made`; the function itself moves into it.
    pub(crate) fn wrapped(
        &self,
        output: &TokenStream,
        made: &TokenStream,
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
                #made
            }
        }
    }
}

/// What is passed to a function whose parameters were taken apart by [`parameter::closure`].
pub(crate) fn passed(parameters: &[Parameter]) -> TokenStream {
    let passed = parameters.iter().enumerate();
    let passed = passed.map(|(position, parameter)| parameter.passed(position));
    quote!(#(#passed),*)
}

/// `AddArguments` for `add`.
pub(crate) fn arguments_name(function: &Ident) -> Ident {
    let words = options::plain(function);
    let capitalised = words.split('_').map(|word| {
        let mut letters = word.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        first.chain(letters).collect::<String>()
    });
    format_ident!("{}Arguments", capitalised.collect::<String>())
}

pub(crate) fn returned_at(signature: &Signature) -> Span {
    match &signature.output {
        ReturnType::Type(_, ty) => ty.span(),
        ReturnType::Default => signature.ident.span(),
    }
}

pub(crate) fn refuse_generics(signature: &Signature) -> Result<()> {
    if signature.generics.params.is_empty() {
        return Ok(());
    }
    let why =
        "a handler has no generics: what is passed to it has one shape, which the model is told";
    Err(Error::new_spanned(&signature.generics, why))
}
