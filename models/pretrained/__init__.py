def load_for_init(*a, **k): raise NotImplementedError
