def grade_class(labs, flags, limits): raise NotImplementedError
