//! [`InlineList`], a list for sessions, of which there are thousands and whose lists rarely have two elements.

/// A list whose first element is stored inline: only a second one allocates.
#[derive(Debug)]
pub(super) struct InlineList<T> {
    first: Option<T>,
    /// Empty while `first` is `None`.
    others: Vec<T>,
}

impl<T> InlineList<T> {
    pub(super) fn push(&mut self, element: T) {
        match &self.first {
            None => self.first = Some(element),
            Some(_) => self.others.push(element),
        }
    }

    /// Calls a function with each element, in order.
    pub(super) fn for_each(self, mut act: impl FnMut(T)) {
        if let Some(first) = self.first {
            act(first);
            self.others.into_iter().for_each(act);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.others)
    }
}

impl<T> Default for InlineList<T> {
    fn default() -> Self {
        Self {
            first: None,
            others: Vec::new(),
        }
    }
}

impl<T> Extend<T> for InlineList<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        elements.into_iter().for_each(|element| self.push(element));
    }
}

impl<T> FromIterator<T> for InlineList<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut list = Self::default();
        list.extend(elements);
        list
    }
}

impl<T> IntoIterator for InlineList<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_stay_in_order() {
        let mut list = InlineList::from_iter([1]);
        list.push(2);
        list.extend([3, 4]);

        assert_eq!(list.iter().copied().collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(list.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn one_element_is_not_allocated() {
        let list = InlineList::from_iter([1]);

        assert_eq!(list.others.capacity(), 0);
    }
}
