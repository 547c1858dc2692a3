/* What all models share: named checks. `spec/run` expects every mutant to break the check that is named there. */

/* A failed check is reported as "assertion violated RULE". Rules are `hidden`: no part of the state. */
#define CHECK(rule, condition) rule = (condition); assert(rule)
