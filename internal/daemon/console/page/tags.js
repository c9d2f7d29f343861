// tagsIn splits the text of the field Tags into conditions. A condition begins where a name
// is followed by =, !=, =~ or !~, so that values may have spaces.
export const tagsIn = (text) => text.trim().split(/\s+(?=[^\s=!]+(?:=|!=|!~))/);
