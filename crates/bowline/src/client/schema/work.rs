//! How much work it is to check a value against a schema.
//!
//! Both come from the server, and a schema of a few hundred bytes can ask for more steps than there are atoms: ten
//! definitions that each refer twice to the next apply the last one 1,024 times. So the steps are counted before
//! they are done, by a walk that visits at least what a validator visits, and stops at the limit.

use serde_json::Value;

/// The schema asks for more steps than the limit allows, or for steps that this walk cannot count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMuchWork;

/// Whether checking `value` against `schema` takes at most `max_steps` steps.
pub(super) fn check_work(
    schema: &Value,
    value: &Value,
    max_steps: usize,
) -> Result<(), TooMuchWork> {
    let mut walk = Walk {
        root: schema,
        steps_left: max_steps,
        depth_left: MAX_DEPTH,
    };
    walk.apply(schema, value)
}

struct Walk<'a> {
    root: &'a Value,
    steps_left: usize,
    /// References may lead deeper than any value is nested.
    depth_left: usize,
}

impl<'a> Walk<'a> {
    fn charge(&mut self, steps: usize) -> Result<(), TooMuchWork> {
        self.steps_left = self.steps_left.checked_sub(steps).ok_or(TooMuchWork)?;
        Ok(())
    }

    /// Applies a schema to a value.
    fn apply(&mut self, schema: &'a Value, value: &Value) -> Result<(), TooMuchWork> {
        let Value::Object(keywords) = schema else {
            return self.charge(1);
        };
        self.depth_left = self.depth_left.checked_sub(1).ok_or(TooMuchWork)?;
        // What these leave over is found by looking once more at what stands beside them.
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
    ) -> Result<(), TooMuchWork> {
        match keyword {
            "$ref" => self.reference(operand, value),
            // Where these lead depends on the way there.
            "$dynamicRef" | "$recursiveRef" => Err(TooMuchWork),
            "allOf" | "anyOf" | "oneOf" => self.each(operand, |walk, one| walk.apply(one, value)),
            "not" | "if" | "then" | "else" | "contentSchema" => self.apply(operand, value),
            "dependentSchemas" | "dependencies" => {
                self.each(operand, |walk, one| walk.apply(one, value))
            }
            "properties" => self.properties(operand, value),
            "patternProperties" => self.each(operand, |walk, one| {
                walk.charge(PATTERN * children(value).count())?;
                children(value).try_for_each(|child| walk.apply(one, child))
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
            "enum" | "const" => self.charge(size(operand)),
            "uniqueItems" => self.charge(COMPARISONS * size(value)),
            "pattern" | "format" => {
                let length = value.as_str().map_or(0, str::len);
                self.charge(PATTERN + length / BYTES_IN_A_STEP)
            }
            _ => Ok(()),
        }
    }

    fn reference(&mut self, target: &Value, value: &Value) -> Result<(), TooMuchWork> {
        // Others name an anchor or another document, which only the validator can find.
        let pointer = target.as_str().and_then(|target| target.strip_prefix('#'));
        let pointer = pointer.filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        let root = self.root;
        match pointer.filter(|pointer| !pointer.contains('%')) {
            // One that leads nowhere makes the schema unusable, which is not for this walk to say.
            Some(pointer) => match root.pointer(pointer) {
                Some(schema) => self.apply(schema, value),
                None => Ok(()),
            },
            None => Err(TooMuchWork),
        }
    }

    fn properties(&mut self, operand: &'a Value, value: &Value) -> Result<(), TooMuchWork> {
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
        mut visit: impl FnMut(&mut Self, &'a Value) -> Result<(), TooMuchWork>,
    ) -> Result<(), TooMuchWork> {
        children(schemas).try_for_each(|one| visit(self, one))
    }
}

/// The items of an array, or the members of an object.
fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(members) => Box::new(members.values()),
        _ => Box::new(std::iter::empty()),
    }
}

/// How many values there are in a value, itself included. It is nested no deeper than `serde_json` reads.
pub(super) fn size(value: &Value) -> usize {
    1 + children(value).map(size).sum::<usize>()
}

/// How many subschemas may be open at once; each takes some of the stack, here and in the validator.
const MAX_DEPTH: usize = 256;
/// How many bytes of a string a regular expression reads in the time of one step.
pub(super) const BYTES_IN_A_STEP: usize = 16;
/// How many steps one part of a schema takes with one part of a value at most.
pub(super) const STEPS_OF_A_PART: usize = 16;
/// How many steps it takes to begin with a regular expression.
const PATTERN: usize = STEPS_OF_A_PART;
/// How often each item of a list is compared to find two that are equal.
const COMPARISONS: usize = STEPS_OF_A_PART;
