/** The direction of a field: that of its text; of an empty one, that of the page, where `auto` would be left-to-right. */
export const directionOf = (text: string): "auto" | undefined => (text === "" ? undefined : "auto")
