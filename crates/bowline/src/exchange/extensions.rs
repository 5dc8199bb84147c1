//! Values by their type: what a server shares with its handlers, and what a layer knows of a request.

use std::any::{Any, TypeId};
use std::sync::Arc;

/// A map that holds at most one value of each type. Cheap to clone; a clone changes on its own.
///
/// # Examples
///
/// ```
/// use bowline::exchange::Extensions;
///
/// let mut extensions = Extensions::default();
/// extensions.insert("a database");
/// assert_eq!(extensions.find::<&str>(), Some(&"a database"));
/// assert_eq!(extensions.find::<u8>(), None);
/// ```
#[derive(Clone, Default)]
pub struct Extensions(Option<Arc<Values>>);

/// There are few, and they are looked for by their types: no map is as quick.
type Values = Vec<(TypeId, Arc<dyn Any + Send + Sync>)>;

impl Extensions {
    /// Puts a value in; it takes the place of an earlier one of the same type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.put(TypeId::of::<T>(), Arc::new(value));
    }

    /// Puts a value in that others share; it is found as if it had been inserted by itself.
    #[cfg_attr(
        not(feature = "http-server"),
        allow(dead_code, reason = "the head of an HTTP request is shared")
    )]
    pub(crate) fn insert_shared<T: Send + Sync + 'static>(&mut self, value: Arc<T>) {
        self.put(TypeId::of::<T>(), value);
    }

    /// The value of a type, if there is one.
    #[must_use]
    pub fn find<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.value(TypeId::of::<T>())?.downcast_ref()
    }

    /// Whether there is a value of the type with this id.
    pub(crate) fn holds(&self, of: TypeId) -> bool {
        self.value(of).is_some()
    }

    /// Adds everything that `others` holds; of two values of one type, the one from `others` stays.
    pub fn extend(&mut self, others: &Self) {
        match (&mut self.0, &others.0) {
            (_, None) => {}
            (own @ None, Some(others)) => *own = Some(others.clone()),
            (Some(_), Some(others)) => {
                for (of, value) in others.iter() {
                    self.put(*of, value.clone());
                }
            }
        }
    }

    fn put(&mut self, of: TypeId, value: Arc<dyn Any + Send + Sync>) {
        let values = Arc::make_mut(self.0.get_or_insert_default());
        match values.iter_mut().find(|(own, _)| *own == of) {
            Some((_, old)) => *old = value,
            None => values.push((of, value)),
        }
    }

    fn value(&self, of: TypeId) -> Option<&(dyn Any + Send + Sync)> {
        let mut values = self.0.as_ref()?.iter();
        let (_, value) = values.find(|(own, _)| *own == of)?;
        Some(&**value)
    }

    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |values| values.len())
    }

    /// Whether there is no value at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl std::fmt::Debug for Extensions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The values may be secrets, and need not know how to print themselves.
        f.debug_struct("Extensions")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_changes_on_its_own() {
        let mut first = Extensions::default();
        first.insert(1_u8);
        let mut second = first.clone();

        second.insert(2_u8);

        assert_eq!(first.find::<u8>(), Some(&1));
        assert_eq!(second.find::<u8>(), Some(&2));
    }

    #[test]
    fn what_is_added_wins_and_the_rest_stays() {
        let mut own = Extensions::default();
        own.insert(1_u8);
        own.insert("kept");
        let mut others = Extensions::default();
        others.insert(2_u8);

        own.extend(&others);

        assert_eq!(own.find::<u8>(), Some(&2));
        assert_eq!(own.find::<&str>(), Some(&"kept"));
        assert_eq!(own.len(), 2);
    }
}
