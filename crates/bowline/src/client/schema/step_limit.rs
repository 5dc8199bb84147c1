//! Counts the steps of validating a value against a schema, before the validator runs.
//!
//! Both come from the server, and references make the work exponential in the size of the schema: ten definitions that
//! each refer twice to the next apply the last one 1,024 times. So the steps are counted first, by a walk that visits
//! at least what a validator visits and stops at the limit.

use serde_json::Value;

/// Validation exceeds the limit of steps, or has steps that this walk cannot count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepLimitExceeded;

/// Returns an error if validating `value` against `schema` takes more than `max_steps` steps.
pub(super) fn check_step_limit(
    schema: &Value,
    value: &Value,
    max_steps: usize,
) -> Result<(), StepLimitExceeded> {
    let mut counter = StepCounter {
        root: schema,
        steps_left: max_steps,
        depth_left: MAX_DEPTH,
    };
    counter.apply(schema, value)
}

struct StepCounter<'a> {
    root: &'a Value,
    steps_left: usize,
    /// Limits recursion: references may lead deeper than any value is nested.
    depth_left: usize,
}

impl<'a> StepCounter<'a> {
    fn charge(&mut self, steps: usize) -> Result<(), StepLimitExceeded> {
        self.steps_left = self
            .steps_left
            .checked_sub(steps)
            .ok_or(StepLimitExceeded)?;
        Ok(())
    }

    /// Applies a schema to a value.
    fn apply(&mut self, schema: &'a Value, value: &Value) -> Result<(), StepLimitExceeded> {
        let Value::Object(keywords) = schema else {
            return self.charge(1);
        };
        self.depth_left = self.depth_left.checked_sub(1).ok_or(StepLimitExceeded)?;
        // For each `unevaluated*` keyword, a validator evaluates its siblings once more.
        let is_unevaluated = |keyword: &&String| keyword.starts_with("unevaluated");
        let times = 1 + keywords.keys().filter(is_unevaluated).count();
        for _ in 0..times {
            self.charge(1 + keywords.len())?;
            for (keyword, operand) in keywords {
                self.keyword(keyword, operand, value)?;
            }
        }
        self.depth_left += 1;
        Ok(())
    }

    fn keyword(
        &mut self,
        keyword: &str,
        operand: &'a Value,
        value: &Value,
    ) -> Result<(), StepLimitExceeded> {
        match keyword {
            "$ref" => self.reference(operand, value),
            // Their target depends on the dynamic scope.
            "$dynamicRef" | "$recursiveRef" => Err(StepLimitExceeded),
            "allOf" | "anyOf" | "oneOf" => {
                self.each(operand, |counter, one| counter.apply(one, value))
            }
            "not" | "if" | "then" | "else" | "contentSchema" => self.apply(operand, value),
            "dependentSchemas" | "dependencies" => {
                self.each(operand, |counter, one| counter.apply(one, value))
            }
            "properties" => self.properties(operand, value),
            "patternProperties" => self.each(operand, |counter, one| {
                counter.charge(REGEX_STEPS * children(value).count())?;
                children(value).try_for_each(|child| counter.apply(one, child))
            }),
            "propertyNames" => {
                let Value::Object(members) = value else {
                    return Ok(());
                };
                let mut names = members.keys();
                names.try_for_each(|name| self.apply(operand, &Value::from(name.as_str())))
            }
            "items" | "prefixItems" if operand.is_array() => {
                let mut pairs = children(operand).zip(children(value));
                pairs.try_for_each(|(one, child)| self.apply(one, child))
            }
            "items"
            | "additionalItems"
            | "unevaluatedItems"
            | "contains"
            | "additionalProperties"
            | "unevaluatedProperties" => {
                children(value).try_for_each(|child| self.apply(operand, child))
            }
            "enum" | "const" => self.charge(count_values(operand)),
            "uniqueItems" => self.charge(COMPARISONS_PER_ITEM * count_values(value)),
            "pattern" | "format" => {
                let length = value.as_str().map_or(0, str::len);
                self.charge(REGEX_STEPS + length / BYTES_PER_STEP)
            }
            _ => Ok(()),
        }
    }

    fn reference(&mut self, target: &Value, value: &Value) -> Result<(), StepLimitExceeded> {
        // Only JSON pointers: anchors and other documents are resolved by the validator alone.
        let pointer = target.as_str().and_then(|target| target.strip_prefix('#'));
        let pointer = pointer.filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        let root = self.root;
        match pointer.filter(|pointer| !pointer.contains('%')) {
            // A dangling pointer is reported when the schema is compiled.
            Some(pointer) => match root.pointer(pointer) {
                Some(schema) => self.apply(schema, value),
                None => Ok(()),
            },
            None => Err(StepLimitExceeded),
        }
    }

    fn properties(&mut self, operand: &'a Value, value: &Value) -> Result<(), StepLimitExceeded> {
        let (Value::Object(schemas), Value::Object(members)) = (operand, value) else {
            return Ok(());
        };
        self.charge(schemas.len())?;
        let mut present = schemas
            .iter()
            .filter_map(|(name, schema)| Some((schema, members.get(name)?)));
        present.try_for_each(|(schema, member)| self.apply(schema, member))
    }

    fn each(
        &mut self,
        schemas: &'a Value,
        mut visit: impl FnMut(&mut Self, &'a Value) -> Result<(), StepLimitExceeded>,
    ) -> Result<(), StepLimitExceeded> {
        children(schemas).try_for_each(|one| visit(self, one))
    }
}

/// Returns the items of an array, or the values of an object's members.
fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(members) => Box::new(members.values()),
        _ => Box::new(std::iter::empty()),
    }
}

/// Returns the number of values in a value, itself included. Recursion is bounded by the depth that `serde_json` reads.
pub(super) fn count_values(value: &Value) -> usize {
    1 + children(value).map(count_values).sum::<usize>()
}

/// The maximum nesting of applied subschemas; each takes stack space, here and in the validator.
const MAX_DEPTH: usize = 256;
/// The number of bytes that a regular expression reads in the time of one step.
pub(super) const BYTES_PER_STEP: usize = 16;
/// The maximum number of steps to apply one part of a schema to one part of a value.
pub(super) const MAX_STEPS_PER_PART: usize = 16;
/// The number of steps to start matching a regular expression.
const REGEX_STEPS: usize = MAX_STEPS_PER_PART;
/// The number of comparisons for each item of a list to find duplicates.
const COMPARISONS_PER_ITEM: usize = MAX_STEPS_PER_PART;
