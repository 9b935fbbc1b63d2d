/// Stores a value in a table that grows to the largest index used.
pub(crate) fn put<T: Copy>(table: &mut Vec<T>, index: usize, value: T) {
    if index >= table.len() {
        table.resize(index + 1, value);
    }
    table[index] = value;
}
